"""Limits an HTTP service by asking a checker about each request: by user if it has one, and by
address. Python 3.9 or newer, nothing else:

    checker --rules ../per-ip-and-user.yaml
    python3 server.py
"""

import http.client
import json
import os
import queue
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Longest wait for a decision, in seconds. A checker on the same machine takes less than 0.001.
TIMEOUT = int(os.environ.get("CHECKER_TIMEOUT_MS", "250")) / 1000


class Checker:
    """Asks a checker, over connections that it keeps open. Threads may share it."""

    def __init__(self, address):
        self.address = address
        self.idle = queue.LifoQueue()

    def check(self, attributes):
        """Returns the checker's decision about one request. It raises nothing: if there is no
        decision in time, the request may pass, and the service works as it would without limits.
        """
        try:
            decision = self._ask(json.dumps({"attributes": attributes}))
            if "allowed" not in decision:
                raise ValueError(decision["error"])
            return decision
        except Exception as error:
            print("no decision, so the request may pass:", repr(error), file=sys.stderr)
            return {"allowed": True}

    def _ask(self, body):
        # A checker closes connections that are idle for 2 minutes. That is noticed only when one is
        # used: then the next one is tried, at last a new one.
        while True:
            try:
                connection, used = self.idle.get_nowait(), True
            except queue.Empty:
                connection, used = http.client.HTTPConnection(self.address, timeout=TIMEOUT), False
            try:
                connection.request("POST", "/v1/check", body)
                answer = connection.getresponse()
                decision = json.load(answer)
                decision |= {"status": answer.status, "after": answer.getheader("Retry-After")}
            except ConnectionError:
                connection.close()
                if not used:
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                self.idle.put(connection)
                return decision


checker = Checker(os.environ.get("CHECKER", "127.0.0.1:8080"))


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        decision = checker.check(self.attributes())
        if decision["allowed"]:
            return self.answer(200, "hello\n")
        # Without Retry-After, waiting does not help.
        headers = {"Retry-After": decision["after"]} if decision["after"] else {}
        return self.answer(decision["status"], decision["rule"] + ": try again later\n", headers)

    def attributes(self):
        """Names what the rules need. Take the user from what has been verified: a client that can
        choose its user can evade its limit."""
        attributes = {"ip": self.client_address[0]}
        if user := self.headers.get("X-User"):
            attributes["user"] = user
        return attributes

    def answer(self, status, text, headers={}):
        body = text.encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Service)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
