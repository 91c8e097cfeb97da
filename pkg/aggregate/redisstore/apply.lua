-- Applies one batch to one shard. Package redisstore's comment shows the layout of the data.
--
-- KEYS: meta, ledger, one mark per report, one text of bits per settlement, one number of texts per
-- settlement, one text per credit, then whatever the loops below use, in that order; at last, how
-- many batches of the caller have changed this shard.
-- ARGV[1], by MessagePack, is a list:
--   1 the latest generation seen   2 the latest version seen   3 the fleet's time in ms
--   4 how long marks live, in ms   5 the marks' sequences      6 ledger: field, delta, ...
--   7 additions: expiry, kind, {field, delta, ...}, ..., each field with a key of its own. Of kind
--     0 the total is known; kinds 1 and 2 ask for it; of 1 the hash has its expiry, of 2 it has none
--     that is later.
--   8 fields to read, each with a key of its own
--   9 rules of one bucket, of which some keys may be new: bound, {a column's expiry, ...}, {field,
--     for each column a delta, or false to read it, ...}, ...; each column has a key of its own
--  10 changes to hashes: {field, what it must be, what it is to be, ...}, ...; false for nothing. A
--     hash changes only if all is as it must be.
--  11 rules of many buckets, of which some keys are to be read: bound, {{field, delta, expiry, how
--     much later it expires if it drains, ...}, ...}, ...
--     A bound is {most new keys, expiry of their number, ledger's field or false}. The number of
--     new keys has a key of its own, before the rule's.
--  12 the settlements' bits       13 permits that settlements change: bucket, delta, ...; each
--    has a key of its own
--  14 credits: to add, to take off, expiry, ...
--  15 how many texts of bits one sender may have kept, 0 for any number
--  16 by how many ms the node's clock was ahead of the fleet's, at least, while the caller has
--     known this shard   17 the latest time of that clock, in ms
--  18 for rules of one bucket, the oldest that is added to; each has a key of its own
-- Expiries are in ms of fleet time.
-- ARGV[2] to ARGV[4] are the generation, the version without leases, and the id of the batch by
-- which the caller knows the shard, or empty; ARGV[5] is this batch's id, or empty if it only reads;
-- ARGV[6] is empty if the caller did not know the shard yet when it made the call. ARGV[7] is how
-- many batches of the caller had changed this shard, as it was told in the latest generation; 0 if
-- it was not.
--
-- Returns, by MessagePack, {0, indices of repeated reports and, beyond these, of settlements, and,
-- beyond these, of overdrawn credits, each with what is left of it, and, beyond these, of
-- settlements that there is no room for...}, or {generation, version, what its loss was, ..., how
-- many batches of the caller have changed the shard, how often leases have raised the version,
-- whether the shard is as the caller knew it, by how many ms the node's clock is ahead of the
-- fleet's} and then each total that was asked for, in the order above; of a key of many buckets its
-- hash: bucket, total, ..., those that have expired included; and for each rule with a bound, after
-- its totals, how many keys are new, and how many keys and hits were too many
--
-- Counts are texts, also those to add: a number would be exact up to 2^53 only.

local call, try, tonumber, type = redis.call, redis.pcall, tonumber, type
local a = cmsgpack.unpack(ARGV[1])
local now, marks, nmarks, bits, permits, credits = a[3], a[5], #a[5], a[12], a[13], a[14]

local repeated = {0}
for from = 1, nmarks, 1000 do
  local to = math.min(from + 999, nmarks)
  local have = call('MGET', unpack(KEYS, 2 + from, 2 + to))
  for i = from, to do
    local mark = have[i - from + 1]
    if mark and tonumber(mark) >= tonumber(marks[i]) then repeated[#repeated + 1] = i - 1 end
  end
end
-- A text that nobody has added to since its sender's number of them began is one more.
local texts, full = {}, {}
for i = 1, #bits do
  local text, sender = KEYS[2 + nmarks + i], KEYS[2 + nmarks + #bits + i]
  local kept = texts[sender]
  if not kept then
    local expires = call('PEXPIRETIME', sender)
    kept = {count = tonumber(call('GET', sender) or 0), expires = expires > 0 and expires, more = {}, any = false}
    texts[sender] = kept
  end
  if call('GETBIT', text, bits[i]) == 1 then
    repeated[#repeated + 1] = nmarks + i - 1
  elseif not kept.more[text] and not (kept.expires and call('PEXPIRETIME', text) >= kept.expires) then
    if a[15] > 0 and kept.count >= a[15] then
      full[#full + 1] = nmarks + #bits + #credits / 3 + i - 1
    else
      kept.more[text], kept.any, kept.count = true, true, kept.count + 1
    end
  end
end
local left, before = {}, 2 + nmarks + 2 * #bits -- of credits, and how many keys come before theirs
for i = 1, #credits / 3 do
  left[i] = tonumber(call('GET', KEYS[before + i]) or 0)
  if credits[3 * i - 1] > left[i] + credits[3 * i - 2] then
    repeated[#repeated + 1] = nmarks + #bits + i - 1
    repeated[#repeated + 1] = left[i]
  end
end
for _, index in ipairs(full) do repeated[#repeated + 1] = index end
if #repeated > 1 then return cmsgpack.pack(repeated) end

local function text(n) return string.format('%.0f', n) end

local time = call('TIME')
local meta = call('HMGET', KEYS[1], 'generation', 'version', 'loss', 'last', 'leases')
local generation, version, leases = tonumber(meta[1] or 0), tonumber(meta[2] or 0), tonumber(meta[5] or 0)
-- Nobody but the caller has changed a count since its last batch. The id tells that batch from
-- another of the same version, as a stale replica may get; the version shows the batches of older
-- builds, which leave no id.
local holds = ARGV[4] ~= '' and meta[4] == ARGV[4] and meta[1] == ARGV[2] and version - leases == tonumber(ARGV[3])
-- A number that has expired goes on from what the caller knows.
local told = tonumber(ARGV[7])
local own = tonumber(call('GET', KEYS[#KEYS]) or told)
-- A loss: the generation that it began, the state that somebody remembered, and the one that was
-- found. A replica that took over without the caller's last batches may have had as many of others
-- since then.
local loss = meta[3] and cmsgpack.unpack(meta[3]) or {}
if generation == 0 or generation < a[1] or generation == a[1] and (version < a[2] or own < told) then
  loss = {math.max(time[1] * 1000000 + time[2], a[1] + 1), a[1], a[2], generation, version}
  generation, version, leases, holds = loss[1], 0, 0, false
  call('HSET', KEYS[1], 'generation', text(generation), 'version', 0, 'leases', 0)
  if a[1] > 0 then -- somebody remembers what this shard does not
    call('HSET', KEYS[1], 'lost', text(time[1] * 1000 + math.floor(time[2] / 1000)), 'loss', cmsgpack.pack(loss))
  end
end

if #KEYS == 3 then -- a probe whether this node can write: the same values again
  call('HSET', KEYS[1], 'generation', text(generation))
end

-- From the marks on nothing may fail: a script that stops half-way is not undone. Out of memory,
-- read-only and the like make the first write fail, which is one of the above or the next. If there
-- is a mark already its expiry is set apart, so that a user who may not set any fails here too.
if nmarks > 0 then
  version = call('HINCRBY', KEYS[1], 'version', 1)
  call('PEXPIREAT', KEYS[3], text(time[1] * 1000 + a[4]))
  for i = 1, nmarks do call('SET', KEYS[2 + i], marks[i], 'PX', a[4]) end
end
if ARGV[5] ~= '' then
  own = own + 1
  call('HSET', KEYS[1], 'last', ARGV[5])
  call('SET', KEYS[#KEYS], own, 'PX', a[4])
end
for sender, kept in pairs(texts) do
  if kept.expires then
    if kept.any then call('SET', sender, kept.count, 'KEEPTTL') end
  else
    call('SET', sender, kept.count, 'PX', a[4])
  end
end
for i = 1, #bits do
  call('SETBIT', KEYS[2 + nmarks + i], bits[i], 1)
  call('PEXPIRE', KEYS[2 + nmarks + i], a[4])
end
for i = 1, #a[6], 2 do try('HINCRBY', KEYS[2], a[6][i], a[6][i + 1]) end

-- This node's clock may differ from the fleet's.
local shift = time[1] * 1000 + math.floor(time[2] / 1000) - now
for i = 1, #left do
  local reported, returned = credits[3 * i - 2], credits[3 * i - 1]
  if reported > 0 or returned > 0 then
    local now_left = math.min(left[i] + reported - returned, 1e15)
    try('SET', KEYS[before + i], text(now_left), 'PXAT', text(credits[3 * i] + shift))
  end
end
if loss[1] ~= generation then loss = {} end -- an older build began it
local r = {generation, version, loss[2] or 0, loss[3] or 0, loss[4] or 0, loss[5] or 0, own, leases, holds, shift}
local n, k = #r, before + #left

-- expire makes a hash expire no earlier than at a time.
local function expire(key, expires)
  local old = try('PEXPIRETIME', key)
  if type(old) == 'number' and old < expires then try('PEXPIREAT', key, text(expires)) end
end

-- number is what a text says: the same few deltas come again and again.
local number = setmetatable({}, {__index = function(t, s)
  local n = tonumber(s)
  t[s] = n
  return n
end})

local trusts = holds and ARGV[6] ~= ''
for b = 1, #a[7], 3 do
  local expires, kind, cells = a[7][b] + shift, a[7][b + 1], a[7][b + 2]
  -- A hash that is known to have its expiry may have expired by a clock that was set.
  local made = kind == 1 and trusts and math.max(now + shift, a[17]) < a[7][b] + a[16]
  local last = kind == 2 and trusts and text(expires)
  for i = 1, #cells, 2 do
    k = k + 1
    local total = try('HINCRBY', KEYS[k], cells[i], cells[i + 1])
    if total == number[cells[i + 1]] then -- only a new count can have made the hash
      if last then
        try('PEXPIREAT', KEYS[k], last)
      elseif not made then
        expire(KEYS[k], expires)
      end
    elseif type(total) == 'table' then -- it would not fit in 64 bits, and stays as it is
      total = 1e18
    end
    if kind > 0 then
      n = n + 1
      r[n] = total
    end
  end
end

-- get reads a count; false if there is none.
local function get(key, field)
  local total = try('HGET', key, field)
  if type(total) == 'table' then return false end
  return total
end

for i = 1, #a[8] do
  n, k = n + 1, k + 1
  r[n] = get(KEYS[k], a[8][i])
end

-- newKeys is how many new keys a rule has in this slice of time, and may have.
local function newKeys(bound)
  k = k + 1
  local made = try('HGET', KEYS[k], 'keys')
  return {counter = KEYS[k], bound = bound, made = type(made) == 'string' and tonumber(made) or 0, fresh = 0, overflow = 0, hits = 0}
end

local function isFull(new) return new.made + new.fresh >= new.bound[1] end

-- pushNew puts how many there are now into the reply. Hits that were too many go from the ledger's
-- counted ones to its overflow.
local function pushNew(new)
  if new.fresh > 0 and type(try('HINCRBY', new.counter, 'keys', new.fresh)) == 'number' then
    try('PEXPIREAT', new.counter, text(new.bound[2] + shift))
  end
  if new.hits > 0 and new.bound[3] then
    try('HINCRBY', KEYS[2], new.bound[3] .. 'counted', text(-new.hits))
    try('HINCRBY', KEYS[2], new.bound[3] .. 'overflow', text(new.hits))
  end
  r[n + 1], r[n + 2], r[n + 3] = new.made + new.fresh, new.overflow, new.hits
  n = n + 3
end

for b = 1, #a[9], 3 do
  local new, expires, cells = newKeys(a[9][b]), a[9][b + 1], a[9][b + 2]
  for c = 1, #expires do expires[c] = text(expires[c] + shift) end
  for i = 1, #cells, 1 + #expires do
    local field, known = cells[i], false
    for c = 1, #expires do
      local delta, total = cells[i + c], false
      k = k + 1
      if not delta then
        total = get(KEYS[k], field)
        known = known or total
      elseif known or not isFull(new) or get(KEYS[k], field) then
        total = try('HINCRBY', KEYS[k], field, delta)
        if type(total) == 'table' then
          total = 1e18
        elseif total == number[delta] then -- only a new count can have made the hash
          try('PEXPIREAT', KEYS[k], expires[c])
          if not known then new.fresh = new.fresh + 1 end
        end
        known = true
      else
        new.overflow, new.hits = new.overflow + 1, new.hits + number[delta]
      end
      n = n + 1
      r[n] = total
    end
  end
  pushNew(new)
end

for i = 1, #a[10] do
  k = k + 1
  local change, fields, set, delete, same = a[10][i], {}, {}, {}, true
  for j = 1, #change, 3 do
    fields[#fields + 1] = change[j]
    local to = change[j + 2] and set or delete
    to[#to + 1] = change[j]
    if change[j + 2] then to[#to + 1] = change[j + 2] end
  end
  local have = try('HMGET', KEYS[k], unpack(fields))
  for j = 1, #fields do same = same and have[j] == change[3 * j - 1] end
  if same then
    if #set > 0 then try('HSET', KEYS[k], unpack(set)) end -- first, as a hash must not be empty in between
    if #delete > 0 then try('HDEL', KEYS[k], unpack(delete)) end
  end
end

for b = 1, #a[11], 2 do
  local new, keys = newKeys(a[11][b]), a[11][b + 1]
  for i = 1, #keys do
    local cells = keys[i]
    k = k + 1
    local key = KEYS[k]
    if #cells > 0 and try('PEXPIRETIME', key) == -2 then -- it is new
      if isFull(new) then
        new.overflow = new.overflow + 1
        for j = 1, #cells, 4 do new.hits = new.hits + number[cells[j + 1]] end
        cells = {}
      else
        new.fresh = new.fresh + 1
      end
    end
    for j = 1, #cells, 4 do
      local total = try('HINCRBY', key, cells[j], cells[j + 1])
      if cells[j + 3] > 0 then -- it also stays until what is added here has drained, after all before it
        local old = try('PEXPIRETIME', key)
        if type(old) == 'number' then
          try('PEXPIREAT', key, text(math.max(cells[j + 2] + shift, old) + cells[j + 3]))
        end
      elseif total == number[cells[j + 1]] then -- the bucket that expires last keeps the whole hash
        expire(key, cells[j + 2] + shift)
      end
    end
    local have = try('HGETALL', key)
    if have.err then have = {} end
    n = n + 1
    r[n] = have -- as it is: to look at each of its entries here would take as long as all the rest
  end
  pushNew(new)
end

for i = 1, #permits, 2 do
  k = k + 1
  local packed = try('GET', KEYS[k])
  if type(packed) == 'string' then
    local held = cmsgpack.unpack(packed)
    for j = 1, #held, 2 do
      if held[j] == permits[i] then
        held[j + 1] = math.min(math.max(held[j + 1] + permits[i + 1], 0), 1e15)
        try('SET', KEYS[k], cmsgpack.pack(held), 'KEEPTTL')
      end
    end
  end
end

-- Aggregators from before owners remember totals of earlier buckets, as long as the number of
-- batches that came late for them stays. They leave the newest bucket; nobody else makes this hash.
for i = 1, #a[18] do
  k = k + 1
  local newest = try('HGET', KEYS[k], 'newest')
  if type(newest) == 'string' and a[18][i] < tonumber(newest) then try('HINCRBY', KEYS[k], 'late', 1) end
end
return cmsgpack.pack(r)
