-- Asks a checker whether a request may pass:
--   http-request lua.offpath http://127.0.0.1:8080/v1/auth
-- A denial is answered as the checker says. If a request may pass, txn.offpath_policy and txn.offpath_limit are the
-- headers that tell of the limit.

-- How long an answer may take, in milliseconds. For rules that let callers wait for longer than 0.5 s (on_limit: queue):
-- /v1/auth?wait=10s, and more time here.
local timeout = 1000

-- How many headers are passed on. HAProxy takes 101 of a client by default; of httpclient's, 2.6 does not count them before it
-- writes past the end of its table.
local most = 90

-- What belongs to the connection, or tells a checker of the request: the client's own is not passed on.
local dropped = {
  ["connection"] = true, ["content-length"] = true, ["transfer-encoding"] = true, ["upgrade"] = true, ["expect"] = true,
  ["te"] = true, ["trailer"] = true, ["keep-alive"] = true, ["host"] = true, ["forwarded"] = true,
}

-- The headers of the question, nil if there are too many.
local function question(txn)
  local headers, count = {}, 0
  for name, values in pairs(txn.http:req_get_headers()) do
    if not dropped[name] and not name:find("^x%-forwarded%-") and not name:find("^x%-original%-") then
      local list = {}
      for _, value in pairs(values) do
        table.insert(list, value)
      end
      headers[name], count = list, count + #list
    end
  end
  if count > most then
    return nil
  end
  headers["x-forwarded-for"] = { txn.f:src() }
  headers["x-forwarded-method"] = { txn.f:method() }
  headers["x-forwarded-uri"] = { txn.f:pathq() }
  headers["x-forwarded-host"] = { txn.f:req_hdr("host") or "" }
  return headers
end

local function first(response, name)
  local values = response.headers and response.headers[name]
  return values and values[0]
end

-- Below 500 it is a checker's word: a request that it refuses to read is denied, or clients would have a way round. Of the others its
-- denials are JSON, and the rest are HAProxy's own, when no answer comes.
local function answered(response)
  if not response or not response.status then
    return false
  end
  local kind = first(response, "content-type") or ""
  return response.status < 500 or kind:find("json", 1, true) ~= nil
end

local function deny(txn, response)
  local reply = txn:reply({ status = response.status })
  for _, name in ipairs({ "content-type", "retry-after", "ratelimit-policy", "ratelimit", "cache-control" }) do
    local value = first(response, name)
    if value then
      reply:add_header(name, value)
    end
  end
  reply:set_body(response.body or "")
  txn:done(reply)
end

core.register_action("offpath", { "http-req" }, function(txn, url)
  local headers = question(txn)
  if not headers then
    txn:done(txn:reply({ status = 431, reason = "Request Header Fields Too Large" }))
  end
  local response = core.httpclient():get({ url = url, headers = headers, timeout = timeout })
  if not answered(response) then
    return -- everything passes; to deny instead: txn:done(txn:reply({ status = 503 }))
  end
  if response.status ~= 200 then
    deny(txn, response)
    return
  end
  local policy, limit = first(response, "ratelimit-policy"), first(response, "ratelimit")
  if limit then
    txn:set_var("txn.offpath_limit", limit)
  end
  if policy then
    txn:set_var("txn.offpath_policy", policy)
  end
end, 1)
