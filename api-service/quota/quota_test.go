package quota

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/internal/redistest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func open(t *testing.T, c Config) *Book {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.timeout = polltest.Patience
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func account(name string, l Limits) []Account {
	return []Account{{Name: name, Whose: "API key", Limits: l}}
}

// refusedFor returns the message of a refusal, or "".
func refusedFor(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	e := streamerr.As(err)
	if e.Reason != streamerr.Overloaded || e.RetryAfter < time.Second || e.RetryAfter > 2*time.Minute {
		t.Errorf("%v, after %v", e, e.RetryAfter)
	}
	return e.Message
}

// books returns two instances that share a server, and one instance without a server, twice.
func books(t *testing.T) map[string][2]*Book {
	addr := redistest.New(t).Addr
	shared := Config{Redis: "redis://" + addr + "/0"}
	alone := open(t, Config{})
	return map[string][2]*Book{"in memory": {alone, alone}, "shared": {open(t, shared), open(t, shared)}}
}

func TestLimitsHoldOverInstances(t *testing.T) {
	for name, both := range books(t) {
		t.Run(name, func(t *testing.T) {
			t.Run("requests", func(t *testing.T) { requestsAreBounded(t, both) })
			t.Run("streams", func(t *testing.T) { streamsAreBounded(t, both) })
			t.Run("tokens", func(t *testing.T) { tokensAreBounded(t, both) })
			t.Run("one of two accounts", func(t *testing.T) { eachAccountIsBounded(t, both) })
		})
	}
}

func requestsAreBounded(t *testing.T, both [2]*Book) {
	t.Helper()
	var admitted atomic.Int64
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			g, err := both[i%2].Admit(t.Context(), account("requests", Limits{Requests: 7}))
			if refusedFor(t, err) == "" {
				admitted.Add(1)
				g.End(1 << 30) // tokens are not limited here
			}
		})
	}
	if all.Wait(); admitted.Load() != 7 {
		t.Errorf("%d of 20 requests are admitted", admitted.Load())
	}
}

func streamsAreBounded(t *testing.T, both [2]*Book) {
	t.Helper()
	limit := account("streams", Limits{Streams: 2})
	first, err := both[0].Admit(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	second, err := both[1].Admit(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := both[0].Admit(t.Context(), limit); refusedFor(t, err) != "this API key may have 2 streams at a time" {
		t.Error(err)
	}
	first.End(0)
	first.End(0)
	var third *Grant
	for third == nil || err != nil { // End does not wait for the server
		third, err = both[1].Admit(t.Context(), limit)
	}
	if _, err := both[0].Admit(t.Context(), limit); refusedFor(t, err) == "" {
		t.Error("a stream that ended twice makes room twice")
	}
	second.End(0)
	third.End(0)
}

func tokensAreBounded(t *testing.T, both [2]*Book) {
	t.Helper()
	limit := account("tokens", Limits{Tokens: 100})
	for range 2 {
		g, err := both[0].Admit(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		g.End(60)
	}
	for {
		g, err := both[1].Admit(t.Context(), limit)
		if err != nil {
			if refusedFor(t, err) != "this API key may use 100 tokens per minute" {
				t.Error(err)
			}
			break
		}
		g.End(0)
	}
}

func eachAccountIsBounded(t *testing.T, both [2]*Book) {
	t.Helper()
	two := []Account{{Name: "a", Whose: "API key", Limits: Limits{Requests: 100}}, {Name: "b", Whose: "tenant", Limits: Limits{Requests: 1}}}
	g, err := both[0].Admit(t.Context(), two)
	if err != nil {
		t.Fatal(err)
	}
	g.End(0)
	refused, err := both[1].Admit(t.Context(), two)
	if refusedFor(t, err) != "this tenant may make 1 requests per minute" {
		t.Error(err)
	}
	told := map[string]string{}
	refused.Headers(func(key, value string) { told[key] = value })
	if told["x-ratelimit-limit-requests"] != "1" || told["x-ratelimit-remaining-requests"] != "0" || told["x-ratelimit-reset-requests"] == "0s" || len(told) != 3 {
		t.Error(told)
	}
	if g, err = both[1].Admit(t.Context(), two[:1]); err != nil {
		t.Fatal(err)
	}
	g.End(0)
	told = map[string]string{}
	g.Headers(func(key, value string) { told[key] = value })
	if told["x-ratelimit-remaining-requests"] != "98" { // the refused request does not count
		t.Error(told)
	}
}

func TestNoLimits(t *testing.T) {
	b := open(t, Config{})
	g, err := b.Admit(t.Context(), account("free", Limits{}))
	if g != nil || err != nil {
		t.Error(g, err)
	}
	g.Headers(func(string, string) { t.Error("a grant without limits has headers") })
	g.End(1)
}

// TestServerRollsTheWindow: the use of the previous minute counts in part, and earlier use does not
// count.
func TestServerRollsTheWindow(t *testing.T) {
	addr := redistest.New(t).Addr
	b := open(t, Config{Redis: "redis://" + addr + "/0"})
	db := redis.NewClient(&redis.Options{Addr: addr})
	defer db.Close()
	for ago, want := range map[int64]struct{ now, before float64 }{0: {6, 0}, 1: {1, 5}, 2: {1, 0}, -1: {6, 0}} {
		name := fmt.Sprint("rolled by ", ago)
		limit := account(name, Limits{Requests: 1000, Tokens: 1000})
		var g *Grant
		minute := func() int64 { return db.Time(t.Context()).Val().Unix() / 60 }
		for sure := false; !sure; { // again, if the minute ends between the record and Admit
			g.End(0)
			now := minute()
			db.Del(t.Context(), keyPrefix+"use:"+name)
			db.HSet(t.Context(), keyPrefix+"use:"+name, "minute", now-ago, "requests", 5, "requests_before", 0)
			var err error
			if g, err = b.Admit(t.Context(), limit); err != nil {
				t.Fatal(err)
			}
			sure = minute() == now
		}
		s := g.states[0]
		if s.requests != (window{want.now, want.before}) {
			t.Errorf("%s: %+v", name, s.requests)
		}
		g.End(0)
	}
}

// TestStreamsOfADeadInstanceStopCounting checks that streams stop counting when their lease has
// expired.
func TestStreamsOfADeadInstanceStopCounting(t *testing.T) {
	addr := redistest.New(t).Addr
	b := open(t, Config{Redis: "redis://" + addr + "/0"})
	db := redis.NewClient(&redis.Options{Addr: addr})
	defer db.Close()
	limit := account("dead", Limits{Streams: 1})
	db.ZAdd(t.Context(), streamsKey("dead"), redis.Z{Score: float64(time.Now().Add(-time.Millisecond).UnixMilli()), Member: "x"})
	g, err := b.Admit(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	before := db.ZScore(t.Context(), streamsKey("dead"), g.stream).Val()
	polltest.Eventually(t, "a beat extends the lease", func() bool {
		b.beat()
		return db.ZScore(t.Context(), streamsKey("dead"), g.stream).Val() > before // in milliseconds
	})
	g.End(0)
}

// TestBeatRestoresStreams: a Redis server without persistence has lost the streams of more accounts
// and streams than fit into one call. A stream that ends during the beat does not count again.
func TestBeatRestoresStreams(t *testing.T) {
	addr := redistest.New(t).Addr
	b := open(t, Config{Redis: "redis://" + addr + "/0"})
	db := redis.NewClient(&redis.Options{Addr: addr})
	defer db.Close()
	var all []*Grant
	for i := range maxBatch + 20 {
		g, err := b.Admit(t.Context(), append(account(fmt.Sprint("lost-", i%10), Limits{Streams: 1000}), account("lost", Limits{Streams: 1000})...))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	if err := db.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	b.beat()
	if n := db.ZCard(t.Context(), streamsKey("lost")).Val(); n != maxBatch+20 {
		t.Errorf("%d streams count again", n)
	}
	if n := db.ZCard(t.Context(), streamsKey("lost-3")).Val(); n != (maxBatch+20)/10 {
		t.Errorf("%d streams of one account count again", n)
	}
	ended := b.own.liveStreams()[:1]
	b.own.leave([]Account{{Name: ended[0].account}}, ended[0].stream, 0, process.Uptime())
	if got := b.own.ended(append(ended, b.own.liveStreams()[0])); len(got) != 1 || got[0] != ended[0] {
		t.Errorf("%v have ended, want %v", got, ended)
	}
	for _, g := range all {
		g.End(0)
	}
	polltest.Eventually(t, "all streams have ended on the server", func() bool { return db.Exists(t.Context(), streamsKey("lost"), streamsKey("lost-3")).Val() == 0 })
}

// TestMissedDeparturesAreSent: streams that end while the server does not answer are charged once,
// when the server answers again.
func TestMissedDeparturesAreSent(t *testing.T) {
	addr := redistest.New(t).Addr
	b := open(t, Config{Redis: "redis://" + addr + "/0"})
	db := redis.NewClient(&redis.Options{Addr: addr})
	defer db.Close()
	limit := account("missed", Limits{Streams: 5, Tokens: 1000})
	tokens := func() string {
		h := db.HMGet(t.Context(), keyPrefix+"use:missed", "tokens", "tokens_before").Val()
		return fmt.Sprint(h...)
	}
	for _, unsure := range []bool{false, true} {
		g, err := b.Admit(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		b.downUntil.Store(int64(process.Uptime() + time.Hour))
		g.End(60)
		b.leaves.Wait()
		if n := db.ZCard(t.Context(), streamsKey("missed")).Val(); n != 1 {
			t.Fatalf("%d streams count while the server is not asked", n)
		}
		if unsure { // the call has reached the server, but its answer has not arrived
			b.missed.waiting[0].unsure = true
			if err := b.tell(departure{accounts: limit, stream: g.stream, tokens: 60}); err != nil {
				t.Fatal(err)
			}
		}
		b.downUntil.Store(0)
		b.beat()
		b.leaves.Wait()
		if n := db.ZCard(t.Context(), streamsKey("missed")).Val(); n != 0 || len(b.missed.waiting) != 0 {
			t.Errorf("%d streams count, and %d departures wait", n, len(b.missed.waiting))
		}
	}
	if got := tokens(); !strings.Contains(got, "120") && got != "60 60" { // a minute may have ended meanwhile
		t.Errorf("charged are %s", got)
	}
	b.downUntil.Store(int64(process.Uptime() + time.Hour))
	for range maxDepartures + 10 {
		b.depart(departure{accounts: limit, stream: "x"})
	}
	if n := len(b.missed.waiting); n != maxDepartures {
		t.Errorf("%d departures wait", n)
	}
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	server := redistest.New(t)
	addr := server.Addr
	var lines logtest.Log
	log := slog.New(slog.NewTextHandler(&lines, nil))
	fallible := open(t, Config{Redis: "redis://" + addr + "/0", Log: log})
	closed := open(t, Config{Redis: "redis://" + addr + "/0", Closed: true, Log: log})
	limit := account("down", Limits{Requests: 3})
	g, err := fallible.Admit(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	server.Kill(t)
	g.End(0)
	admitted := 1
	for range 10 {
		if g, err := fallible.Admit(t.Context(), limit); refusedFor(t, err) == "" {
			admitted++
			g.End(0)
		}
	}
	if admitted != 3 { // by its own counts
		t.Errorf("%d requests are admitted", admitted)
	}
	for range 2 {
		if _, err := closed.Admit(t.Context(), limit); streamerr.As(err).Reason != streamerr.Unavailable || streamerr.As(err).RetryAfter == 0 {
			t.Error(err)
		}
	}
	if g, err := closed.Admit(t.Context(), account("free", Limits{})); g != nil || err != nil {
		t.Error("a caller without limits:", err)
	}
	if n := strings.Count(lines.String(), "redis does not answer"); n != 2 {
		t.Errorf("%d log lines: %s", n, lines.String())
	}
}

// TestWindow checks that there is room after the wait, and not before.
func TestWindow(t *testing.T) {
	for _, w := range []window{{0, 0}, {10, 0}, {0, 10}, {4, 20}, {30, 5}, {1, 1}} {
		for _, limit := range []float64{0, 1, 5, 9} {
			for at := time.Duration(0); at < minute; at += 7 * time.Second {
				left := w.wait(limit, at)
				after := func(d time.Duration) float64 {
					then := at + d
					return w.roll(int64(then / minute)).sum(then % minute)
				}
				if over := after(left + time.Microsecond); over > limit+1e-6 {
					t.Errorf("%+v at %v: after %v it is %v, over %v", w, at, left, over, limit)
				}
				if left > time.Millisecond && after(left-time.Millisecond) < limit-1e-6 {
					t.Errorf("%+v at %v: %v is too long for %v", w, at, left, limit)
				}
			}
		}
	}
}

func TestMemoryForgetsIdleAccounts(t *testing.T) {
	m := newMemory()
	now := 100 * time.Minute
	m.enter(account("idle", Limits{Requests: 1}), visit{stream: "s1", requests: 1}, now, true)
	m.leave(account("idle", Limits{}), "s1", 5, now)
	m.enter(account("busy", Limits{Requests: 1}), visit{stream: "s2", requests: 1}, now, true)
	if _, refused := m.enter(account("idle", Limits{Requests: 1}), visit{stream: "s3", requests: 1}, now+59*time.Second, true); refused.limit != requests {
		t.Error(refused)
	}
	m.enter(account("other", Limits{}), visit{stream: "s4", requests: 1}, now+3*time.Minute, true)
	if m.counts["idle"] != nil || m.counts["busy"] == nil {
		t.Errorf("%v", m.counts)
	}
}

// TestLateCallerDoesNotMoveAMinuteBack: a caller has read the clock before the minute ended, and comes
// after a caller of the next minute.
func TestLateCallerDoesNotMoveAMinuteBack(t *testing.T) {
	m := newMemory()
	a := account("a", Limits{Requests: 10})
	for i := range 10 {
		m.enter(a, visit{stream: fmt.Sprint(i), requests: 1}, 59*time.Second, true)
	}
	m.enter(a, visit{stream: "next", requests: 1}, time.Minute+time.Millisecond, true)
	m.leave(a, "0", 0, time.Minute-time.Millisecond)
	if _, refused := m.enter(a, visit{stream: "again", requests: 1}, time.Minute+2*time.Millisecond, true); refused.limit != requests {
		t.Error("the use of the last minute is forgotten:", refused)
	}
}

func TestLimitsAreChecked(t *testing.T) {
	if (Limits{Tokens: -1}).Check() == nil || (Limits{1, 2, 3}).Check() != nil {
		t.Error("negative limits must be refused, and only these")
	}
	if _, err := New(Config{Redis: "no URL"}); err == nil {
		t.Error("an invalid URL is accepted")
	}
}

// TestAStreamIsChargedAndCheckedPerTurn checks that the tokens of a turn count when it has ended,
// once, and that further turns of the stream count as requests.
func TestAStreamIsChargedAndCheckedPerTurn(t *testing.T) {
	for name, both := range books(t) {
		t.Run(name, func(t *testing.T) {
			here, there := both[0], both[1]
			a := account("turns", Limits{Requests: 3, Tokens: 100, Streams: 1})
			g, err := here.Admit(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			g.Charge(t.Context(), 60)
			g.Charge(t.Context(), 60)
			if err := g.Turn(t.Context()); err != nil { // its own stream leaves room for itself
				t.Error(err)
			}
			g.Charge(t.Context(), 99)
			if err := g.Turn(t.Context()); err != nil {
				t.Error(err)
			}
			if why := refusedFor(t, g.Turn(t.Context())); !strings.Contains(why, "3 requests per minute") {
				t.Errorf("a fourth turn: %q", why)
			}
			g.End(99)
			b := account("tokens", Limits{Tokens: 100})
			if g, err = here.Admit(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			defer g.End(100)
			g.Charge(t.Context(), 100)
			if why := refusedFor(t, g.Turn(t.Context())); !strings.Contains(why, "100 tokens per minute") {
				t.Errorf("a turn beyond the tokens: %q", why)
			}
			if _, err := there.Admit(t.Context(), b); !strings.Contains(refusedFor(t, err), "100 tokens per minute") {
				t.Error("another request while the stream is open:", err)
			}
		})
	}
}
