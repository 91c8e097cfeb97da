-- Looks up the number of shards, and records it if there is none and one is given.
-- KEYS: config. ARGV: number of shards or 0, format. Returns {shards or 0, format, seconds,
-- microseconds, the fleet's time less this clock's in ns, as text}.
local call = redis.call
if ARGV[1] ~= '0' and call('HSETNX', KEYS[1], 'shards', ARGV[1]) == 1 then
  call('HSET', KEYS[1], 'format', ARGV[2])
end
local time = call('TIME')
local have = call('HMGET', KEYS[1], 'shards', 'format', 'offset')
return {tonumber(have[1] or 0), tonumber(have[2] or 0), tonumber(time[1]), tonumber(time[2]), have[3] or '0'}
