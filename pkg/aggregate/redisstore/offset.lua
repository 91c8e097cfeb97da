-- Puts another offset of the fleet's time on record, if the present one is the one given.
-- KEYS: config. ARGV: the present offset, the new one, in ns.
if (redis.call('HGET', KEYS[1], 'offset') or '0') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'offset', ARGV[2])
return 1
