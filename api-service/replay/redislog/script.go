package redislog

import "github.com/redis/go-redis/v9"

// The scripts here and in claims.go change the state of a stream on a Redis server. Each runs as
// one step. Times (ttl) are in milliseconds.

// The states of a stream, from the field "state" of its head. A stream without a head is absent.
const (
	stateLive      = "live"
	stateBeginning = "beginning"
	stateEnded     = "ended"
	stateForgotten = "forgotten"

	stateTaken = "taken" // returned by beginScript; no head has this state
)

// leasedLua is the Lua function that reports whether an instance has a lease.
const leasedLua = `
local function leased(leases, run)
  local time = redis.call('TIME')
  local until_ = redis.call('ZSCORE', leases, run)
  return until_ and tonumber(until_) >= time[1] * 1000 + math.floor(time[2] / 1000)
end`

// The scripts of the instance that runs a stream, or that ends it in place of a dead instance.
var (
	// beginScript creates the head of a stream, in state beginning, unless the idempotency key has
	// a stream or the id has a head. It returns the id and the state of the stream: of the new
	// stream, of the stream that has the key, or an empty id if the id is taken. A log without a
	// head is left from an earlier stream with the id, whose head the server has evicted: Begin
	// deletes such a log. If another instance has taken the stream over and has restored it first,
	// the state is stateTaken. age is the age of the stream.
	beginScript = redis.NewScript(`
local head, log, key, request, streams = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ttl, keyed, id, prefix, age, asked = ARGV[1], ARGV[2] ~= '', ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local epoch, run = ARGV[7], ARGV[8]
local there = redis.call('HMGET', head, 'epoch', 'run')
if there[1] == epoch and there[2] and there[2] ~= run then return {'', 'taken'} end
if keyed then
  local known = redis.call('GET', key)
  local state = known and redis.call('HGET', prefix .. known, 'state')
  if state and state ~= 'forgotten' then return {known, state} end
end
if there[1] then return {'', ''} end
redis.call('DEL', log, request)
local time = redis.call('TIME')
local began = time[1] * 1000 + math.floor(time[2] / 1000) - age
redis.call('HSET', head, 'state', 'beginning', 'last', '0', 'since', began, 'epoch', epoch, 'run', run, unpack(ARGV, 9))
redis.call('PEXPIRE', head, ttl)
if asked ~= '' then redis.call('SET', request, asked, 'PX', ttl) end
redis.call('SADD', streams, id)
if keyed then redis.call('SET', key, id, 'PX', ttl) end
return {id, 'beginning'}`)

	// addScript makes a stream live, appends the events that the server does not have, and makes
	// the stream ended if the closing event is among them. It returns the number of the last event,
	// and the cause with which another instance stops the stream. Instead of the number it returns
	// -1 if the server does not know the stream, -2 if another instance has ended it or has taken
	// it over, and -3 if it was forgotten. addScript can be repeated.
	addScript = redis.NewScript(`
local head, log, key, request, streams = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, epoch, run, closing, ttl, wake = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local known = redis.call('HMGET', head, 'epoch', 'state', 'last', 'closer', 'run', 'stop')
local state, last, stop = known[2], tonumber(known[3]), known[6] or ''
if known[1] ~= epoch then return {-1, ''} end
if state == 'forgotten' then return {-3, ''} end
if known[5] ~= run then return {-2, ''} end
if state == 'ended' then
  if known[4] ~= run then return {-2, ''} end
  return {last, ''}
end
for i = 7, #ARGV, 4 do
  local seq = tonumber(ARGV[i])
  if seq > last then
    redis.call('XADD', log, seq .. '-0', 'kind', ARGV[i+1], 'data', ARGV[i+2], 'note', ARGV[i+3])
    last = seq
  end
end
redis.call('HSET', head, 'last', last, 'state', 'live')
if closing ~= '' then
  redis.call('HSET', head, 'state', 'ended', 'closer', run)
  redis.call('DEL', request)
  redis.call('SREM', streams, id)
else
  redis.call('PEXPIRE', request, ttl)
  redis.call('SADD', streams, id)
end
redis.call('PEXPIRE', head, ttl)
redis.call('PEXPIRE', log, ttl)
if key ~= head and redis.call('EXISTS', key) == 1 then redis.call('PEXPIRE', key, ttl) end
redis.call('PUBLISH', wake, '')
return {last, stop}`)

	// loseScript ends a beginning or live stream with a closing event, in place of the dead
	// instance. The dead instance may have shown its readers more events than it has written, so
	// the closing event begins a generation, as after a takeover: its number is higher than that of
	// any event of the stream. owner is the dead instance, or the instance that calls loseScript.
	// loseScript changes nothing if the owner has a lease, or if grace is not empty and another
	// instance can take the stream over. An instance that takes over streams counts for the time
	// grace after the end of its lease: it may only have been without CPU.
	loseScript = redis.NewScript(`
local head, log, key, request, streams, leases, heirs = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local id, epoch, run, ttl, wake, kind, data, owner = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local grace = tonumber(ARGV[9])
` + leasedLua + `
if owner ~= run and leased(leases, owner) then return 0 end
if grace then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  for _, heir in ipairs(redis.call('ZRANGEBYSCORE', heirs, string.format('%.0f', now - grace), '+inf')) do
    if heir ~= run and heir ~= owner then return 0 end
  end
end
local known = redis.call('HMGET', head, 'epoch', 'state', 'last', 'run')
local state = known[2]
if known[4] ~= owner or (state ~= 'beginning' and state ~= 'live') then redis.call('SREM', streams, id) end
if known[1] ~= epoch or known[4] ~= owner or (state ~= 'beginning' and state ~= 'live') then return 0 end
local last = (math.floor(known[3] / 1000000000) + 1) * 1000000000 + known[3] % 1000000000 + 1
redis.call('XADD', log, last .. '-0', 'kind', kind, 'data', data, 'note', '')
redis.call('HSET', head, 'last', last, 'state', 'ended', 'closer', run)
redis.call('DEL', request)
redis.call('SREM', streams, id)
redis.call('PEXPIRE', head, ttl)
redis.call('PEXPIRE', log, ttl)
if key ~= head and redis.call('GET', key) == id then redis.call('PEXPIRE', key, ttl) end
redis.call('PUBLISH', wake, '')
return 1`)

	// forgetScript drops a stream and frees its key. The head remains for a while, in state
	// forgotten, so that readers can tell a dropped stream from a stream that the server has lost.
	// forgetScript changes nothing if another stream has the id, or if another instance has taken
	// the stream over.
	forgetScript = redis.NewScript(`
local head, log, key, request, streams = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, epoch, wake, ttl, run = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local known = redis.call('HMGET', head, 'epoch', 'run')
redis.call('SREM', streams, id)
if known[1] and (known[1] ~= epoch or known[2] and known[2] ~= run) then return 0 end
if key ~= head and redis.call('GET', key) == id then redis.call('DEL', key) end
redis.call('DEL', head, log, request)
redis.call('HSET', head, 'state', 'forgotten', 'epoch', epoch)
redis.call('PEXPIRE', head, ttl)
redis.call('PUBLISH', wake, '')
return 1`)

	// refuseScript ends a beginning or live stream of the instance run with the closing event that
	// has the number seq, unless the stream has ended, and frees its key. The events expire after
	// ttl. refuseScript changes nothing if another instance has the stream, or if it was forgotten.
	refuseScript = redis.NewScript(`
local head, log, key, request, streams = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, epoch, run, ttl, wake, seq, kind, data = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local known = redis.call('HMGET', head, 'epoch', 'state', 'run')
if known[1] ~= epoch or known[2] == 'forgotten' or known[3] ~= run then return 0 end
if known[2] ~= 'ended' then
  redis.call('XADD', log, seq .. '-0', 'kind', kind, 'data', data, 'note', '')
  redis.call('HSET', head, 'last', seq, 'state', 'ended', 'closer', run)
end
redis.call('DEL', request)
redis.call('SREM', streams, id)
if key ~= head and redis.call('GET', key) == id then redis.call('DEL', key) end
redis.call('PEXPIRE', head, ttl)
redis.call('PEXPIRE', log, ttl)
redis.call('PUBLISH', wake, '')
return 1`)

	// eraseScript is forgetScript for an ended stream of any instance. It returns 0 if the stream
	// has not ended.
	eraseScript = redis.NewScript(`
local head, log, key, request = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, epoch, wake, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local known = redis.call('HMGET', head, 'epoch', 'state')
if known[1] ~= epoch or known[2] == 'forgotten' then return 1 end
if known[2] ~= 'ended' then return 0 end
if key ~= head and redis.call('GET', key) == id then redis.call('DEL', key) end
redis.call('DEL', head, log, request)
redis.call('HSET', head, 'state', 'forgotten', 'epoch', epoch)
redis.call('PEXPIRE', head, ttl)
redis.call('PUBLISH', wake, '')
return 1`)
)
