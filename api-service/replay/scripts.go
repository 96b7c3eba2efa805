package replay

import "github.com/redis/go-redis/v9"

// What happens on the server in one step.
var (
	// begin makes a head, unless the key has a stream already. The head expires after beginTTL unless add prolongs it
	// and marks it in its field live. A head that never becomes live is an orphan: its instance has given up waiting
	// for this script, or has died. begin returns the stream's id and whether the stream is live; the id is "" if it
	// is taken.
	begin = redis.NewScript(`
local head, key, prefix = KEYS[1], KEYS[2], ARGV[4]
local ttl, keyed, id = ARGV[1], ARGV[2] ~= '', ARGV[3]
if keyed then
  local known = redis.call('GET', key)
  if known then return {known, redis.call('HEXISTS', prefix .. known, 'live')} end
end
if redis.call('EXISTS', head) == 1 then return {'', 0} end
redis.call('HSET', head, 'last', '0', unpack(ARGV, 5))
redis.call('PEXPIRE', head, ttl)
if keyed then redis.call('SET', key, id, 'PX', ttl) end
return {id, 0}`)

	// add makes the head live, and adds the events that are not there yet, if there are any. It returns the number of the last event,
	// -1 if there is no such head, and -2 if another instance has closed the stream. It can be repeated.
	add = redis.NewScript(`
local head, log, key = KEYS[1], KEYS[2], KEYS[3]
local epoch, run, closing, ttl, wake = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('HGET', head, 'epoch') ~= epoch then return -1 end
local ended, last = redis.call('HGET', head, 'ended'), tonumber(redis.call('HGET', head, 'last'))
if ended and ended ~= run then return -2 end
if ended then return last end
for i = 6, #ARGV, 3 do
  local seq = tonumber(ARGV[i])
  if seq > last then
    redis.call('XADD', log, seq .. '-0', 'kind', ARGV[i+1], 'data', ARGV[i+2])
    last = seq
  end
end
redis.call('HSET', head, 'last', last, 'live', '1')
if closing ~= '' then redis.call('HSET', head, 'ended', run) end
redis.call('PEXPIRE', head, ttl)
redis.call('PEXPIRE', log, ttl)
if key ~= head and redis.call('EXISTS', key) == 1 then redis.call('PEXPIRE', key, ttl) end
redis.call('PUBLISH', wake, '')
return last`)

	// lose closes a stream that nobody has closed, in the place of who should have.
	lose = redis.NewScript(`
local head, log = KEYS[1], KEYS[2]
local epoch, run, ttl, wake, kind, data = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if redis.call('HGET', head, 'epoch') ~= epoch or redis.call('HEXISTS', head, 'ended') == 1 then return 0 end
local last = tonumber(redis.call('HGET', head, 'last')) + 1
redis.call('XADD', log, last .. '-0', 'kind', kind, 'data', data)
redis.call('HSET', head, 'last', last, 'ended', run)
redis.call('PEXPIRE', head, ttl)
redis.call('PEXPIRE', log, ttl)
redis.call('PUBLISH', wake, '')
return 1`)

	// forget drops a stream. It leaves a head without an epoch for a while, so that readers can tell a dropped stream from a stream that
	// the server has lost. If a later stream has the id, forget changes nothing.
	forget = redis.NewScript(`
local head, log, key = KEYS[1], KEYS[2], KEYS[3]
local id, epoch, wake, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local known = redis.call('HGET', head, 'epoch')
if known and known ~= epoch then return 0 end
if key ~= head and redis.call('GET', key) == id then redis.call('DEL', key) end
redis.call('DEL', head, log)
redis.call('HSET', head, 'forgotten', '1')
redis.call('PEXPIRE', head, ttl)
redis.call('PUBLISH', wake, '')
return 1`)
)
