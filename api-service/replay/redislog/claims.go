package redislog

import "github.com/redis/go-redis/v9"

// The scripts that move streams between instances. The sorted set "leases" has the instances, each
// with the server time, in milliseconds, at which its lease ends. "heirs" has, in the same form,
// the instances that take over streams. A set "streams:" has the streams of each instance; the set
// of the instance "" has the streams that were handed over.
var (
	// beatScript extends the lease of an instance, and returns the instances without a lease.
	beatScript = redis.NewScript(`
local leases, heirs, streams = KEYS[1], KEYS[2], KEYS[3]
local run, lease, heir, ttl = ARGV[1], ARGV[2], ARGV[3] ~= '', ARGV[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', leases, now + lease, run)
if heir then redis.call('ZADD', heirs, now + lease, run) else redis.call('ZREM', heirs, run) end
redis.call('PEXPIRE', streams, ttl)
redis.call('PEXPIRE', leases, ttl)
redis.call('PEXPIRE', heirs, ttl)
return redis.call('ZRANGEBYSCORE', leases, '-inf', '(' .. string.format('%.0f', now), 'LIMIT', 0, 64)`)

	// leaveScript ends the lease of an instance. Its remaining streams are taken over at once.
	leaveScript = redis.NewScript(`
local leases, heirs, streams = KEYS[1], KEYS[2], KEYS[3]
local run = ARGV[1]
redis.call('ZREM', heirs, run)
if redis.call('SCARD', streams) == 0 then return redis.call('ZREM', leases, run) end
return redis.call('ZADD', leases, 0, run)`)

	// buryScript forgets an instance without a lease and without streams.
	buryScript = redis.NewScript(`
local leases, heirs, streams = KEYS[1], KEYS[2], KEYS[3]
local run = ARGV[1]
` + leasedLua + `
if leased(leases, run) or redis.call('SCARD', streams) > 0 then return 0 end
redis.call('ZREM', heirs, run)
return redis.call('ZREM', leases, run)`)

	// takeScript gives a live stream of an instance without a lease to the instance run: from then
	// on, addScript, loseScript and forgetScript refuse all other instances. takeScript begins a
	// generation of events. It returns nothing if the owner has a lease or another instance was
	// faster. Otherwise it returns the age of the stream in milliseconds, the positions of its
	// seams, and the cause with which the stream must stop. An instance that got no answer, or
	// could not load the stream, repeats takeScript with itself as the owner; that begins no
	// further generation.
	takeScript = redis.NewScript(`
local head, log, key, request, from, to, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local id, epoch, owner, run, ttl, edge = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
` + leasedLua + `
if owner ~= run and leased(leases, owner) then return {} end
local known = redis.call('HMGET', head, 'epoch', 'state', 'run', 'last', 'seams', 'since', 'stop', 'stopped', 'edge')
if known[1] ~= epoch or known[2] ~= 'live' or known[3] ~= owner then return {} end
local seams = known[5] or ''
if owner ~= run then
  local seam = string.format('%.0f', known[4] % 1000000000)
  seams = seams ~= '' and seams .. ',' .. seam or seam
  redis.call('HSET', head, 'from', known[9])
  if owner ~= '' then redis.call('HDEL', head, 'handed') end
end
redis.call('HSET', head, 'run', run, 'edge', edge, 'seams', seams)
redis.call('SMOVE', from, to, id)
redis.call('PEXPIRE', head, ttl)
redis.call('PEXPIRE', log, ttl)
redis.call('PEXPIRE', request, ttl)
if key ~= head and redis.call('GET', key) == id then redis.call('PEXPIRE', key, ttl) end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return {string.format('%.0f', now - known[6]), seams, known[7] or known[8] or ''}`)

	// handOverScript leaves a live stream to any heir, unless its owner is the only one. If the
	// owner has run the stream, and so has stopped it on the hops below, the head records that.
	// Otherwise the head names the instance that ran the stream before.
	handOverScript = redis.NewScript(`
local head, streams, orphans, leases, heirs = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, epoch, run, ran = ARGV[1], ARGV[2], ARGV[3], ARGV[5] ~= ''
local known = redis.call('HMGET', head, 'epoch', 'state', 'run')
if known[1] ~= epoch or known[2] ~= 'live' or known[3] ~= run then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local left = redis.call('ZCOUNT', heirs, string.format('%.0f', now), '+inf')
local own = redis.call('ZSCORE', heirs, run)
if own and tonumber(own) >= now then left = left - 1 end
if left == 0 then return 0 end
redis.call('HSET', head, 'run', '')
local from = redis.call('HGET', head, 'from')
if ran then redis.call('HSET', head, 'handed', '1')
elseif from then redis.call('HSET', head, 'edge', from) end
redis.call('SMOVE', streams, orphans, id)
redis.call('PEXPIRE', orphans, ARGV[4])
redis.call('ZADD', leases, 0, '')
return 1`)

	// stopScript records, in a field of the head, the cause with which an instance stops a stream
	// of another instance: in "stop" for the owner and the next owner, in "stopped" only for the
	// next owner.
	stopScript = redis.NewScript(`
local head = KEYS[1]
local epoch, cause, field = ARGV[1], ARGV[2], ARGV[3]
local known = redis.call('HMGET', head, 'epoch', 'state')
if known[1] ~= epoch or (known[2] ~= 'beginning' and known[2] ~= 'live') then return 0 end
redis.call('HSETNX', head, field, cause)
return 1`)
)
