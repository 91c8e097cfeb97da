// Limits an HTTP service by asking a checker about each request: by user if it has one, and by
// address. Node 18 or newer, nothing else:
//
//   checker --rules ../per-ip-and-user.yaml
//   node server.mjs

import { createServer } from "node:http";

const checker = process.env.CHECKER ?? "http://127.0.0.1:8080";
const port = process.env.PORT ?? 3000;

// Longest wait for a decision, in ms. A checker on the same machine takes less than one.
const timeout = Number(process.env.CHECKER_TIMEOUT_MS ?? 250);

// check resolves to the checker's decision about one request. It never rejects: if there is no
// decision in time, the request may pass, and the service works as it would without limits.
async function check(attributes) {
  try {
    // fetch keeps connections open and takes them again, once the body has been read.
    const answer = await fetch(`${checker}/v1/check`, {
      method: "POST",
      body: JSON.stringify({ attributes }),
      signal: AbortSignal.timeout(timeout),
    });
    const decision = await answer.json();
    if (typeof decision.allowed !== "boolean") throw new Error(decision.error);
    return { ...decision, status: answer.status, retryAfter: answer.headers.get("retry-after") };
  } catch (error) {
    console.error("no decision, so the request may pass:", error.cause ?? error);
    return { allowed: true };
  }
}

// attributesOf names what the rules need. Take the user from what has been verified: a client that
// can choose its user can evade its limit.
function attributesOf(request) {
  const attributes = { ip: request.socket.remoteAddress };
  const user = request.headers["x-user"];
  if (user) attributes.user = user;
  return attributes;
}

const server = createServer(async (request, response) => {
  const decision = await check(attributesOf(request));
  if (!decision.allowed) {
    // Without it, waiting does not help.
    if (decision.retryAfter) response.setHeader("Retry-After", decision.retryAfter);
    response.writeHead(decision.status).end(`${decision.rule}: try again later\n`);
    return;
  }
  response.end("hello\n");
});

server.listen(port, "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
