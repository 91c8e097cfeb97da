-- Applies one batch to one shard. Package redisstore's comment shows the layout of the data.
--
-- KEYS: meta, ledger, one mark per report, one text of bits per settlement, one number of texts per
-- settlement, one text per credit, then whatever the loops below use, in that order.
-- ARGV[1], by MessagePack, is a list:
--   1 the latest generation seen   2 the latest version seen   3 the fleet's time in ms
--   4 how long marks live, in ms   5 the marks' sequences      6 ledger: field, delta, ...
--   7 rules of one bucket: fields, {expiry, column, ...}, watch, bound, ...
--     A column is a bucket: false to read it for every field, true to leave it out, or a list with,
--     for each field, a delta, false or true; or 0 to leave it out where there is nothing. A watch
--     is false, or {current bucket, oldest bucket that is added to or false, expiry}, and has a key
--     of its own.
--   8 single counts: field, delta or false, expiry, ...
--   9 rules of many buckets: what drains, first bucket to keep, buckets from which on a key is rid
--     of those before it, {{bucket, delta, expiry, ...}, ...}, bound, ...
--     A bound is {most new keys, expiry of their number, ledger's field or false}. The number of
--     new keys has a key of its own, before the rule's.
--     What drains is false, or {hits that drain per window, buckets in one, its length in ms, the
--     longest in ms, then for each limit of before until when in eighths of a bucket, and the
--     limit, ...}, or true for what was refunded of that: it is in the same hash, with an r before
--     each bucket.
--  10 the settlements' bits       11 permits that settlements change: bucket, delta, ...; each
--    has a key of its own
--  12 credits: to add, to take off, expiry, ...
--  13 how many texts of bits one sender may have kept, 0 for any number
-- Expiries are in ms of fleet time.
--
-- Returns, by MessagePack, {0, indices of repeated reports and, beyond these, of settlements, and,
-- beyond these, of overdrawn credits, each with what is left of it, and, beyond these, of
-- settlements that there is no room for...}, or {generation, version, what its loss was, ...} and
-- then for a watch the late batches before and after this one, for each column a total per field,
-- for each single its total, for each key of many buckets its hash: bucket, total, ..., those that
-- have expired included; and for each rule, after its columns or keys, how many keys are new, and
-- how many keys and hits were too many
--
-- Counts are texts, also those to add: a number would be exact up to 2^53 only.

local call, try, tonumber, type = redis.call, redis.pcall, tonumber, type
local a = cmsgpack.unpack(ARGV[1])
local now, marks, nmarks, bits, permits, credits = a[3], a[5], #a[5], a[10], a[11], a[12]

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
    if a[13] > 0 and kept.count >= a[13] then
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
local meta = call('HMGET', KEYS[1], 'generation', 'version', 'loss')
local generation, version = tonumber(meta[1] or 0), tonumber(meta[2] or 0)
-- A loss: the generation that it began, the state that somebody remembered, and the one that was
-- found.
local loss = meta[3] and cmsgpack.unpack(meta[3]) or {}
if generation == 0 or generation < a[1] or generation == a[1] and version < a[2] then
  loss = {math.max(time[1] * 1000000 + time[2], a[1] + 1), a[1], a[2], generation, version}
  generation, version = loss[1], 0
  call('HSET', KEYS[1], 'generation', text(generation), 'version', 0)
  if a[1] > 0 then -- somebody remembers what this shard does not
    call('HSET', KEYS[1], 'lost', text(time[1] * 1000 + math.floor(time[2] / 1000)), 'loss', cmsgpack.pack(loss))
  end
end

if #KEYS == 2 then -- a probe whether this node can write: the same values again
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
local number = setmetatable({}, {__index = function(t, s)
  local n = tonumber(s)
  t[s] = n
  return n
end})
for i = 1, #left do
  local reported, returned = credits[3 * i - 2], credits[3 * i - 1]
  if reported > 0 or returned > 0 then
    local now_left = math.min(left[i] + reported - returned, 1e15)
    try('SET', KEYS[before + i], text(now_left), 'PXAT', text(credits[3 * i] + shift))
  end
end
if loss[1] ~= generation then loss = {} end -- an older build began it
local r, n, k = {generation, version, loss[2] or 0, loss[3] or 0, loss[4] or 0, loss[5] or 0}, 6, before + #left

-- add adds to a count; only one that is new in its hash can have made the hash.
local function add(key, field, delta, expires)
  local total = try('HINCRBY', key, field, delta)
  if total == number[delta] then
    try('PEXPIREAT', key, expires)
  elseif type(total) == 'table' then -- it would not fit in 64 bits, and stays as it is
    return 1e18
  end
  return total
end

-- get reads a count; false if there is none.
local function get(key, field)
  local total = try('HGET', key, field)
  if type(total) == 'table' then return false end
  return total
end

-- watch counts the batches that add to a bucket after another batch has met a later one. As long as
-- the number stays, so do the totals of earlier buckets, and whoever has read them need not read
-- them again.
local function watch(key, current, oldest, expires)
  local have = try('HMGET', key, 'newest', 'late')
  local newest, before = tonumber(have[1] or current), tonumber(have[2] or 0)
  local after = before
  if nmarks > 0 and (not have[1] or current > newest) then
    newest = current
    try('HSET', key, 'newest', text(newest))
    try('PEXPIREAT', key, text(expires + shift))
  end
  if oldest and oldest < newest then
    after = try('HINCRBY', key, 'late', 1)
    if type(after) == 'table' then after = before end
  end
  r[n + 1], r[n + 2] = before, after
  n = n + 2
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

for b = 1, #a[7], 4 do
  local fields, columns, w = a[7][b], a[7][b + 1], a[7][b + 2]
  local count, new, known = #fields, newKeys(a[7][b + 3]), {}
  if w then
    k = k + 1
    watch(KEYS[k], w[1], w[2], w[3])
  end
  for c = 1, #columns, 2 do
    local column = columns[c + 1]
    if column == false then
      for i = 1, count do
        local total = get(KEYS[k + i], fields[i])
        r[n + i], known[i] = total, known[i] or total
      end
      k = k + count
    elseif column == true then
      for i = 1, count do r[n + i], known[i] = false, true end
    else
      local expires = text(columns[c] + shift)
      for i = 1, count do
        local delta, total = column[i], false
        if delta == true then
          known[i] = true
        elseif delta ~= 0 then
          k = k + 1
          if not delta then
            total = get(KEYS[k], fields[i])
            known[i] = known[i] or total
          elseif known[i] or not isFull(new) or get(KEYS[k], fields[i]) then
            total = add(KEYS[k], fields[i], delta, expires)
            if not known[i] and total == number[delta] then new.fresh = new.fresh + 1 end
            known[i] = true
          else
            new.overflow, new.hits = new.overflow + 1, new.hits + number[delta]
          end
        end
        r[n + i] = total
      end
    end
    n = n + count
  end
  pushNew(new)
end

for i = 1, #a[8], 3 do
  local field, delta, total = a[8][i], a[8][i + 1], false
  n, k = n + 1, k + 1
  if delta then
    total = add(KEYS[k], field, delta, text(a[8][i + 2] + shift))
  else
    total = get(KEYS[k], field)
  end
  r[n] = total
end

-- settle makes one level of the counts before a bucket, as package window does: what drains in a
-- bucket goes off it, and then its count comes to it, without what was refunded of that. The level
-- is in whole hits and parts, of which as many make a hit as there are buckets in a window: so each
-- number is a whole one, and exact.
local function settle(key, have, keep, drain)
  local counts, refunded, old, level = {}, {}, {}, {}
  for j = 1, #have, 2 do
    local bucket = number[have[j]]
    if not bucket then
      local of = tonumber(string.match(have[j], '^r(.+)$'))
      if not of then
        level[have[j]] = tonumber(have[j + 1])
      elseif of < keep then
        refunded[of] = tonumber(have[j + 1])
        try('HDEL', key, have[j])
      end
    elseif bucket < keep then
      old[#old + 1] = bucket
      counts[bucket] = {have[j], tonumber(have[j + 1])}
    end
  end
  if #old == 0 then return end
  table.sort(old)
  local at, hits, parts = level.at or old[1] - 1, level.hits or 0, level.parts or 0
  local buckets = drain[2]
  local function ebb(limit, eighths)
    local whole, part = math.floor(eighths / 8), math.floor(limit * (eighths % 8) / 8)
    parts = parts - limit % buckets * whole - part % buckets
    hits = hits - math.floor(limit / buckets) * whole - math.floor(part / buckets) + math.floor(parts / buckets)
    parts = parts % buckets
  end
  for i = 1, #old do
    local passed = old[i] - at
    if passed > 0 then -- or else it came too late, and is in no level
      local from, to = 8 * (at + 1), 8 * (old[i] + 1)
      for p = 5, #drain, 2 do
        local till = math.min(drain[p], to)
        if till > from then
          ebb(drain[p + 1], till - from)
          from = till
        end
      end
      ebb(drain[1], to - from)
      if hits < 0 then hits, parts = 0, 0 end
      hits, at = hits + math.min(math.max(counts[old[i]][2] - (refunded[old[i]] or 0), 0), 1e15), old[i]
      if hits >= 1e15 then hits, parts = 1e15, 0 end
    end
    try('HDEL', key, counts[old[i]][1])
  end
  try('HSET', key, 'at', text(at), 'hits', text(hits), 'parts', text(parts))
end

for b = 1, #a[9], 5 do
  local drain, keep, most, keys = a[9][b], a[9][b + 1], 2 * a[9][b + 2], a[9][b + 3]
  local new = newKeys(a[9][b + 4])
  for i = 1, #keys do
    local cells = keys[i]
    n, k = n + 1, k + 1
    local key = KEYS[k]
    if #cells > 0 and try('PEXPIRETIME', key) == -2 then -- it is new
      if isFull(new) then
        new.overflow = new.overflow + 1
        for j = 1, #cells, 3 do new.hits = new.hits + number[cells[j + 1]] end
        cells = {}
      else
        new.fresh = new.fresh + 1
      end
    end
    for j = 1, #cells, 3 do
      -- The bucket that expires last keeps the whole hash.
      local expires, old = cells[j + 2] + shift, try('PEXPIRETIME', key)
      if type(old) == 'number' then expires = math.max(expires, old) end
      if drain and drain ~= true then -- the key also stays until what is added here has drained, after all before it
        expires = text(expires + math.min(number[cells[j + 1]] / drain[1] * drain[3], drain[4]))
      else
        expires = text(expires)
      end
      local total = add(key, cells[j], cells[j + 1], expires)
      if drain and total ~= number[cells[j + 1]] then try('PEXPIREAT', key, expires) end
    end
    local have = try('HGETALL', key)
    if have.err then have = {} end
    r[n] = have -- as it is: to look at each of its entries here would take as long as all the rest
    local full = #have > most and nmarks > 0
    if full and drain == true then -- when the admitted ones are settled, which they are taken off
    elseif full and drain then
      settle(key, have, keep, drain)
    elseif full then
      for j = 1, #have, 2 do
        if tonumber(have[j]) < keep then try('HDEL', key, have[j]) end
      end
    end
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
return cmsgpack.pack(r)
