-- Carries out one lease batch of one shard. Package redisstore's comment shows the layout of the
-- data.
--
-- KEYS: meta, for each rule the number of its new keys, then for each key its held permits and, for
-- each request, that checker's share; at last, how many batches of the caller have changed this
-- shard.
-- ARGV[1], by MessagePack, is a list:
--   1 the latest generation seen   2 the latest version seen   3 the fleet's time in ms, at the earliest
--   4 rules: window in ms, buckets, fixed, limit, most new keys, expiry of their number in ms of
--     fleet time, ...
--   5 keys: rule, {bucket, known, want, {bucket, returned in all, ...}, ...}, ...
--   6 how many batches of the caller had changed this shard, as in apply.lua   7 how long that
--     number lives, in ms
--
-- Returns, by MessagePack, {generation, version, time in ms, what its loss was as in apply.lua, ...,
-- how many batches of the caller have changed the shard} and then for each key: its current bucket,
-- how many permits were granted, how many taken back, 1 if it is new and one too many, when held
-- permits may last have been forgotten, in ms, or 0, {bucket, held, ...}, and for each request what
-- its checker has been granted in the current bucket in all, and in the bucket that it names; and
-- for each rule, how many keys are new, and how many were too many, of which nothing is granted.
--
-- Held permits are {bucket, held, ...} and a share is {bucket, granted, returned, ...}, packed. All
-- counts are at most 1e15, and so exact; times are in ms, and rounding them down lets less leave
-- the window.

local call, floor, ceil, min, max = redis.call, math.floor, math.ceil, math.min, math.max
local encode, decode = cmsgpack.pack, cmsgpack.unpack
local MOST = 1e15
local a = decode(ARGV[1])

local function text(n) return string.format('%.0f', n) end

local time = call('TIME')
local clock = time[1] * 1000 + floor(time[2] / 1000)
local now = a[3]
local meta = call('HMGET', KEYS[1], 'generation', 'version', 'lost', 'loss', 'ahead', 'stepped', 'by')
local generation, version, lost = tonumber(meta[1] or 0), tonumber(meta[2] or 0), tonumber(meta[3] or 0)
local ahead, stepped, by = tonumber(meta[5]), tonumber(meta[6] or 0), tonumber(meta[7] or 0)
local loss = meta[4] and decode(meta[4]) or {}
local own = tonumber(call('GET', KEYS[#KEYS]) or a[6])
if generation == 0 or generation < a[1] or generation == a[1] and (version < a[2] or own < a[6]) then
  loss = {max(time[1] * 1000000 + time[2], a[1] + 1), a[1], a[2], generation, version}
  generation, version = loss[1], 0
  call('HSET', KEYS[1], 'generation', text(generation), 'version', 0, 'leases', 0)
  if a[1] > 0 then
    lost = clock
    call('HSET', KEYS[1], 'lost', text(lost), 'loss', encode(loss))
  end
end

-- How long ago the loss was, at least, by this clock: the batch's time may be of long ago. A clock
-- that was set back since then begins again.
if lost > clock then
  lost = clock
  call('HSET', KEYS[1], 'lost', text(lost))
end

-- Permits expire by this node's clock, SPARE ms or a window after they have left every window. If
-- that clock goes ahead of the fleet's time by more, because it was set or another node has taken
-- over, held ones may be gone: that is a loss, to the rules of shorter windows. (So is a batch that
-- has waited for so long.)
local SPARE = 2000
local shift = clock - now
if not ahead or math.abs(shift - ahead) > SPARE / 4 then
  local step = ahead and shift - ahead or 0
  if step > SPARE then
    by = clock - stepped < 2 * by and max(by, step) or step
    stepped = clock
  end
  stepped = min(stepped, clock)
  -- If there is no memory for that, the next call finds the same.
  redis.pcall('HSET', KEYS[1], 'ahead', text(shift), 'stepped', text(stepped), 'by', text(by))
end

local values = {}
for from = 2, #KEYS - 1, 1000 do
  local to = min(from + 999, #KEYS - 1)
  local have = call('MGET', unpack(KEYS, from, to))
  for i = from, to do values[i] = have[i - from + 1] end
end

-- rules by index: what is the same for all of a rule's keys.
local rules = {}
for i = 1, #a[4], 6 do
  local r = {length = a[4][i], buckets = a[4][i + 1], fixed = a[4][i + 2], limit = a[4][i + 3]}
  r.most, r.expires, r.counter = a[4][i + 4], a[4][i + 5], #rules + 2
  r.made, r.fresh, r.overflow = tonumber(values[r.counter] or 0), 0, 0
  r.size = r.length / r.buckets
  r.live = r.fixed and 1 or r.buckets + 1
  r.current = floor(now / r.size)
  r.left = r.size - now % r.size
  r.keep = floor((now - r.length) / r.size) - r.live + 1 -- the first bucket that has not expired
  r.spare = max(r.length, SPARE)
  r.lost = by > r.spare and max(lost, stepped) or lost
  r.since = clock - r.lost - 1
  r.quiet = r.lost > 0 and r.since < r.live * r.size -- see storage.QuietUntil
  rules[#rules + 1] = r
end

-- share is how much of n, which is at most 1e15, still lies in the window: n * left / size, rounded
-- up. Each product is below 2^53, and so exact: left and size are below 2^35.
local function share(n, left, size)
  local whole, rest = floor(n / size), n % size
  local high, low = floor(left / 131072), left % 131072
  local middle = rest * high
  return whole * left + floor(middle / size) * 131072 + ceil((middle % size * 131072 + rest * low) / size)
end

-- room is how many permits may be granted: see storage.Room.
local function room(r, held)
  local rest, oldest = r.limit, 0
  for i = 1, #held, 2 do
    local age = r.current - held[i]
    if age > -r.live and age < r.live then
      if age == r.buckets then oldest = held[i + 1] else rest = rest - held[i + 1] end
    end
  end
  if oldest > 0 then rest = rest - share(oldest, r.left, r.size) end
  return max(rest, 0)
end

-- divide is storage.Divide. From 2^53 on products are rounded; then the shares may be others, but
-- are never more than there is room, or than is wanted.
local function divide(rest, wants)
  local all, n = 0, #wants
  for i = 1, n do all = all + wants[i] end
  if all <= rest then return wants end
  local shares, order, given = {}, {}, 0
  for i = 1, n do
    local product = rest * wants[i]
    local part = min(floor(product / all), wants[i], rest - given)
    shares[i], given = part, given + part
    order[i] = {i, product - part * all}
  end
  if given < rest then
    table.sort(order, function(x, y) return x[2] > y[2] or x[2] == y[2] and x[1] < y[1] end)
    for i = 1, min(rest - given, n) do
      local k = order[i][1]
      if shares[k] < wants[k] then shares[k] = shares[k] + 1 end
    end
  end
  return shares
end

-- find returns where a bucket's entry begins in a list of entries of that width, or nil.
local function find(list, bucket, width)
  for i = #list - width + 1, 1, -width do
    if list[i] == bucket then return i end
  end
end

-- read unpacks a list of entries of that width, without those that have expired.
local function read(packed, width, keep)
  local list = packed and decode(packed) or {}
  if not list[1] or list[1] >= keep then return list end
  local kept = {}
  for i = 1, #list, width do
    if list[i] >= keep then
      for j = i, i + width - 1 do kept[#kept + 1] = list[j] end
    end
  end
  return kept
end

-- entry finds a bucket's entry in a list, in the order of buckets, and makes one if there is none.
local function entry(list, bucket, width)
  local i = #list + 1
  while i > 1 and list[i - width] >= bucket do i = i - width end
  if list[i] ~= bucket then
    for _ = 2, width do table.insert(list, i, 0) end
    table.insert(list, i, bucket)
  end
  return i
end

-- takeBack takes in what a request returns, and returns how many permits that frees.
local function takeBack(r, mine, held, returns)
  local freed = 0
  for j = 1, #returns, 2 do
    local i = find(mine, returns[j], 3)
    if i and returns[j] > r.current - r.live then
      local n = min(returns[j + 1], mine[i + 1]) - mine[i + 2]
      if n > 0 then
        mine[i + 2], freed = mine[i + 2] + n, freed + n
        local h = entry(held, returns[j], 2)
        held[h + 1] = max(held[h + 1] - n, 0)
      end
    end
  end
  return freed
end

local function granted(mine, bucket)
  local i = find(mine, bucket, 3)
  return i and mine[i + 1] or 0
end

if loss[1] ~= generation then loss = {} end -- an older build began it
local reply, n, k = {generation, version, now, loss[2] or 0, loss[3] or 0, loss[4] or 0, loss[5] or 0, own}, 8, 1 + #rules

local function push(value)
  n = n + 1
  reply[n] = value
end

-- Writes wait until all is computed, so that whatever can fail fails before the first or with it.
local writes = {}

-- write keeps a list, and makes it expire with its newest bucket, some time after that has left
-- every window. This node's clock may differ from the fleet's.
local function write(key, list, width, r)
  local expires = (list[#list - width + 1] + r.live) * r.size + r.spare + shift
  writes[#writes + 1] = {key, encode(list), text(expires)}
end

for i = 1, #a[5], 2 do
  local r, requests = rules[a[5][i] + 1], a[5][i + 1]
  k = k + 1
  local heldKey, held = k, read(values[k], 2, r.keep)
  local mine, wants, freed, count, new, back = {}, {}, {}, #requests / 4, 0, 0
  for j = 1, count do
    mine[j] = read(values[heldKey + j], 3, r.keep)
    freed[j] = takeBack(r, mine[j], held, requests[4 * j])
    back = back + freed[j]
  end
  local full = not values[heldKey] and r.made + r.fresh >= r.most
  for j = 1, count do
    local have, known = granted(mine[j], r.current), 0
    if requests[4 * j - 3] == r.current then known = requests[4 * j - 2] end
    wants[j] = 0
    if not r.quiet and not full and have == known then wants[j] = min(requests[4 * j - 1], r.limit, MOST - have) end
  end
  local shares = divide(room(r, held), wants)
  for j = 1, count do
    if shares[j] > 0 then
      local m = entry(mine[j], r.current, 3)
      mine[j][m + 1] = mine[j][m + 1] + shares[j]
      local h = entry(held, r.current, 2)
      held[h + 1] = held[h + 1] + shares[j]
      new = new + shares[j]
    end
    if shares[j] > 0 or freed[j] > 0 then write(KEYS[heldKey + j], mine[j], 3, r) end
  end
  if new > 0 or back > 0 then write(KEYS[heldKey], held, 2, r) end
  if full then
    r.overflow = r.overflow + 1
  elseif new > 0 and not values[heldKey] then
    r.fresh = r.fresh + 1
  end
  push(r.current)
  push(new)
  push(back)
  push(full and 1 or 0)
  push(r.lost > 0 and now - r.since or 0)
  push(held)
  for j = 1, count do
    push(granted(mine[j], r.current))
    push(granted(mine[j], requests[4 * j - 3]))
  end
  k = k + count
end

for i = 1, #rules do
  local r = rules[i]
  if r.fresh > 0 then writes[#writes + 1] = {KEYS[r.counter], text(r.made + r.fresh), text(r.expires + shift)} end
  push(r.made + r.fresh)
  push(r.overflow)
end

if #writes > 0 then
  reply[2] = call('HINCRBY', KEYS[1], 'version', 1)
  call('HINCRBY', KEYS[1], 'leases', 1) -- so that whoever knows the counts sees that they are the same
  reply[8] = own + 1
  call('SET', KEYS[#KEYS], own + 1, 'PX', a[7])
end
for i = 1, #writes do call('SET', writes[i][1], writes[i][2], 'PXAT', writes[i][3]) end
return encode(reply)
