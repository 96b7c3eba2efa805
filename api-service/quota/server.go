package quota

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/redisclient"
)

// keyPrefix begins the names of all keys.
const keyPrefix = "whence:quota:1:"

// A server shares the counts between instances. For each account it has a hash with the use of two
// minutes, and a sorted set of the running streams, each with the time, in milliseconds, at which
// its lease ends.
type server struct{ db *redis.Client }

// maxReplies bounds the replies that all connections receive at a time, in bytes: a reply is a few
// numbers for each account.
const maxReplies = 4 << 20

// newServer returns the server at a redis:// URL.
func newServer(url string, timeout time.Duration, log *slog.Logger) (*server, error) {
	o, err := redisclient.Options(redisclient.Config{URL: url, Timeout: timeout, MaxBytes: maxReplies, Log: log})
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true
	return &server{redis.NewClient(o)}, nil
}

func (s *server) close() error { return s.db.Close() }

// use is the Lua code that the scripts share. now is the time in milliseconds. roll returns the use
// of an account in the current minute, as the count and the two windows, and set stores it.
const use = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local minute = math.floor(now / 60000)
local function roll(key)
  local h = redis.call('HMGET', key, 'minute', 'requests', 'requests_before', 'tokens', 'tokens_before')
  local was = tonumber(h[1]) or minute
  local r, rb, t, tb = tonumber(h[2]) or 0, tonumber(h[3]) or 0, tonumber(h[4]) or 0, tonumber(h[5]) or 0
  if was == minute - 1 then return {0, r, 0, t} end
  if was < minute then return {0, 0, 0, 0} end
  return {r, rb, t, tb}
end
local function set(key, u)
  redis.call('HSET', key, 'minute', minute, 'requests', u[1], 'requests_before', u[2], 'tokens', u[3], 'tokens_before', u[4])
  redis.call('PEXPIRE', key, 180000)
end`

var (
	// enter charges tokens to the accounts. It counts requests and a stream of the accounts, unless an
	// account has no room; a stream that counts already leaves room for itself. Its keys are the
	// hash and the set of each account. It returns the number of the account without room,
	// from 1, or 0; the number of the limit; the milliseconds since the minute began; and the
	// windows and the streams of each account.
	enter = redis.NewScript(use + `
local stream, lease, asked, used = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local at = now % 60000
local rest = 1 - at / 60000
local refused, limit, uses, running = 0, 0, {}, {}
for i = 1, #KEYS / 2 do
  local u = roll(KEYS[2*i-1])
  redis.call('ZREMRANGEBYSCORE', KEYS[2*i], '-inf', '(' .. string.format('%.0f', now))
  local n = redis.call('ZCARD', KEYS[2*i])
  if redis.call('ZSCORE', KEYS[2*i], stream) then n = n - 1 end
  u[3] = u[3] + used
  if used > 0 then set(KEYS[2*i-1], u) end
  local requests, tokens, streams = tonumber(ARGV[3*i+2]), tonumber(ARGV[3*i+3]), tonumber(ARGV[3*i+4])
  uses[i], running[i] = u, n
  local full = 0
  if asked > 0 and requests > 0 and u[1] + u[2] * rest + asked > requests then full = 1
  elseif tokens > 0 and u[3] + u[4] * rest >= tokens then full = 2
  elseif streams > 0 and n >= streams then full = 3 end
  if full > 0 and refused == 0 then refused, limit = i, full end
end
local out = {refused, limit, at}
for i = 1, #KEYS / 2 do
  local u = uses[i]
  if refused == 0 then
    u[1] = u[1] + asked
    set(KEYS[2*i-1], u)
    redis.call('ZADD', KEYS[2*i], now + lease, stream)
    redis.call('PEXPIRE', KEYS[2*i], 2 * lease)
  end
  for j = 1, 4 do out[#out+1] = u[j] end
  out[#out+1] = running[i]
end
return out`)

	// leave charges tokens to the accounts, and ends a stream. ARGV[3] is 1 if an earlier call may
	// have done so: then only the accounts are charged in which the stream still counts.
	leave = redis.NewScript(use + `
for i = 1, #KEYS / 2 do
  local counted = redis.call('ZREM', KEYS[2*i], ARGV[1])
  if counted == 1 or ARGV[3] == '0' then
    local u = roll(KEYS[2*i-1])
    u[3] = u[3] + tonumber(ARGV[2])
    set(KEYS[2*i-1], u)
  end
end
return 1`)

	// keep extends the leases of streams, and restores streams that the server has lost. Its keys
	// are the sets of the accounts; its arguments are the lease, and for each stream the number of
	// its key and its name.
	keep = redis.NewScript(use + `
local lease = tonumber(ARGV[1])
for i = 2, #ARGV, 2 do redis.call('ZADD', KEYS[tonumber(ARGV[i])], now + lease, ARGV[i+1]) end
for i = 1, #KEYS do redis.call('PEXPIRE', KEYS[i], 2 * lease) end
return 1`)
)

func streamsKey(account string) string { return keyPrefix + "streams:" + account }

func keysOf(accounts []Account) (keys []string) {
	for _, a := range accounts {
		keys = append(keys, keyPrefix+"use:"+a.Name, streamsKey(a.Name))
	}
	return keys
}

// enter charges and counts a visit, as memory.enter does.
func (s *server) enter(ctx context.Context, accounts []Account, v visit) (states []state, refused refusal, err error) {
	args := []any{v.stream, streamLease.Milliseconds(), v.requests, v.tokens}
	for _, a := range accounts {
		args = append(args, a.Limits.Requests, a.Limits.Tokens, a.Limits.Streams)
	}
	n, err := enter.Run(ctx, s.db, keysOf(accounts), args...).Int64Slice()
	if err != nil {
		return nil, granted, err
	}
	return parse(n, len(accounts))
}

// errAnswer is the error of an answer that the script enter cannot have given.
var errAnswer = errors.New("quota: the answer of redis is not that of the script")

// parse reads the answer of the script enter about a number of accounts.
func parse(n []int64, accounts int) (states []state, refused refusal, err error) {
	if len(n) != 3+5*accounts || n[0] < 0 || n[0] > int64(accounts) || n[2] < 0 || n[2] >= time.Minute.Milliseconds() {
		return nil, granted, errAnswer
	}
	if kind := limit(n[1]); n[0] > 0 && kind != requests && kind != tokens && kind != streams {
		return nil, granted, errAnswer
	}
	at := time.Duration(n[2]) * time.Millisecond
	for u := range slices.Chunk(n[3:], 5) {
		if slices.Min(u) < 0 {
			return nil, granted, errAnswer
		}
		states = append(states, state{
			at: at, requests: window{float64(u[0]), float64(u[1])}, tokens: window{float64(u[2]), float64(u[3])}, streams: int(u[4]),
		})
	}
	return states, refusal{int(n[0]) - 1, limit(n[1])}, nil
}

// leave ends a stream, and charges its tokens.
func (s *server) leave(ctx context.Context, d departure) error {
	unsure := 0
	if d.unsure {
		unsure = 1
	}
	return leave.Run(ctx, s.db, keysOf(d.accounts), d.stream, d.tokens, unsure).Err()
}

// keep extends the leases of streams.
func (s *server) keep(ctx context.Context, batch []liveStream) error {
	args, numbers := []any{streamLease.Milliseconds()}, map[string]int{}
	var keys []string
	for _, r := range batch {
		if numbers[r.account] == 0 {
			keys = append(keys, streamsKey(r.account))
			numbers[r.account] = len(keys)
		}
		args = append(args, numbers[r.account], r.stream)
	}
	return keep.Run(ctx, s.db, keys, args...).Err()
}
