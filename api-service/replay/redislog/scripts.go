package redislog

import "github.com/redis/go-redis/v9"

// The scripts that change the state of a stream on the server. Each runs as one step. The package
// comment has the table of states. A head holds the field "state", which is one of the words below; a
// stream without a head is absent.
//
// Times (ttl) are in milliseconds.
const (
	stateBeginning = "beginning"
	stateEnded     = "ended"
	stateForgotten = "forgotten"
)

var (
	// begin makes the head of a stream, in state beginning, unless the idempotency key has a stream or the
	// id has a head. It returns the id and the state of the stream: its own, that of the key's stream, or
	// an empty id if the id is taken. A log without a head is left from an earlier stream with the id,
	// whose head the server has evicted: begin deletes it.
	begin = redis.NewScript(`
local head, log, key, prefix = KEYS[1], KEYS[2], KEYS[3], ARGV[4]
local ttl, keyed, id = ARGV[1], ARGV[2] ~= '', ARGV[3]
if keyed then
  local known = redis.call('GET', key)
  local state = known and redis.call('HGET', prefix .. known, 'state')
  if state and state ~= 'forgotten' then return {known, state} end
end
if redis.call('EXISTS', head) == 1 then return {'', ''} end
redis.call('DEL', log)
redis.call('HSET', head, 'state', 'beginning', 'last', '0', unpack(ARGV, 5))
redis.call('PEXPIRE', head, ttl)
if keyed then redis.call('SET', key, id, 'PX', ttl) end
return {id, 'beginning'}`)

	// add makes a stream live, appends the events that the server does not have, and makes the stream ended
	// if the closing event is among them. It returns the number of the last event, -1 if the server does
	// not know the stream, -2 if another instance has ended it, and -3 if it was forgotten. It can be
	// repeated.
	add = redis.NewScript(`
local head, log, key = KEYS[1], KEYS[2], KEYS[3]
local epoch, run, closing, ttl, wake = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local known = redis.call('HMGET', head, 'epoch', 'state', 'last', 'closer')
local state, last = known[2], tonumber(known[3])
if known[1] ~= epoch then return -1 end
if state == 'forgotten' then return -3 end
if state == 'ended' then
  if known[4] ~= run then return -2 end
  return last
end
for i = 6, #ARGV, 3 do
  local seq = tonumber(ARGV[i])
  if seq > last then
    redis.call('XADD', log, seq .. '-0', 'kind', ARGV[i+1], 'data', ARGV[i+2])
    last = seq
  end
end
redis.call('HSET', head, 'last', last, 'state', 'live')
if closing ~= '' then redis.call('HSET', head, 'state', 'ended', 'closer', run) end
redis.call('PEXPIRE', head, ttl)
redis.call('PEXPIRE', log, ttl)
if key ~= head and redis.call('EXISTS', key) == 1 then redis.call('PEXPIRE', key, ttl) end
redis.call('PUBLISH', wake, '')
return last`)

	// lose ends a beginning or live stream with a closing event, in place of the instance that has died.
	// That instance may have shown its readers more events than it has written, so the closing event gets
	// a number that no event of the stream has reached.
	lose = redis.NewScript(`
local head, log, key = KEYS[1], KEYS[2], KEYS[3]
local id, epoch, run, ttl, wake, kind, data = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local known = redis.call('HMGET', head, 'epoch', 'state', 'last')
local state = known[2]
if known[1] ~= epoch or (state ~= 'beginning' and state ~= 'live') then return 0 end
local last = tonumber(known[3]) + 1000000000
redis.call('XADD', log, last .. '-0', 'kind', kind, 'data', data)
redis.call('HSET', head, 'last', last, 'state', 'ended', 'closer', run)
redis.call('PEXPIRE', head, ttl)
redis.call('PEXPIRE', log, ttl)
if key ~= head and redis.call('GET', key) == id then redis.call('PEXPIRE', key, ttl) end
redis.call('PUBLISH', wake, '')
return 1`)

	// forget drops a stream and frees its key. Its head stays for a while, in state forgotten, so that
	// readers can tell a dropped stream from a stream that the server has lost. forget changes nothing if
	// another stream has the id.
	forget = redis.NewScript(`
local head, log, key = KEYS[1], KEYS[2], KEYS[3]
local id, epoch, wake, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local known = redis.call('HGET', head, 'epoch')
if known and known ~= epoch then return 0 end
if key ~= head and redis.call('GET', key) == id then redis.call('DEL', key) end
redis.call('DEL', head, log)
redis.call('HSET', head, 'state', 'forgotten', 'epoch', epoch)
redis.call('PEXPIRE', head, ttl)
redis.call('PUBLISH', wake, '')
return 1`)
)
