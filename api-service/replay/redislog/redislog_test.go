package redislog_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/redisclient"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/redislog"
	"github.com/whence-dev/whence/api-service/replay/replaytest"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/redistest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // the tests wait for leases to end; the flag exists
	redisclient.LogTo(io.Discard)
	leaktest.Main(m)
}

var closing = replay.Event{Kind: replay.Ending, Data: "{}"}

// A server is a redis-server for one test.
type server struct{ *redistest.Server }

func serve(t testing.TB) server {
	t.Helper()
	return server{redistest.New(t)}
}

func (s server) open(t testing.TB, l replay.Limits) *redislog.Log { return open(t, s.Addr, l) }

func open(t testing.TB, addr string, l replay.Limits) *redislog.Log {
	t.Helper()
	return openLogging(t, addr, l, slog.DiscardHandler)
}

// patient is a lease for tests in which no instance dies, however slow the machine and the server
// are.
const patient = redislog.MaxLease

func openLogging(t testing.TB, addr string, l replay.Limits, logs slog.Handler) *redislog.Log {
	t.Helper()
	return openLeased(t, addr, l, logs, 0)
}

// openLeased is openLogging with a lease; 0 means the default.
func openLeased(t testing.TB, addr string, l replay.Limits, logs slog.Handler, lease time.Duration) *redislog.Log {
	t.Helper()
	return openWith(t, redislog.Config{URL: "redis://" + addr + "/0", Limits: l, Log: slog.New(logs), Lease: lease}.With(redislog.Timeouts{}))
}

// openWith opens a log that takes no streams over.
func openWith(t testing.TB, c redislog.Config) *redislog.Log {
	t.Helper()
	c.Lost = func(h replay.Head) replay.Event { return replay.Event{Kind: replay.Failure, Data: "lost " + h.Edge} }
	l, err := redislog.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// openTimed is openLeased with timeouts and a lease under which no instance dies.
func openTimed(t testing.TB, addr string, timeouts redislog.Timeouts) *redislog.Log {
	t.Helper()
	return openWith(t, redislog.Config{URL: "redis://" + addr + "/0", Log: slog.New(slog.DiscardHandler), Lease: patient}.With(timeouts))
}

func TestRedisKeepsTheContract(t *testing.T) {
	t.Parallel()
	replaytest.Run(t, func(t *testing.T, l replay.Limits) replay.Log { return serve(t).open(t, l) })
}

// A pair writes with one instance and reads with another.
type pair struct {
	*redislog.Log
	reads *redislog.Log
}

func (p pair) Open(ctx context.Context, id string) (replay.Reader, error) {
	return p.reads.Open(ctx, id)
}
func (p pair) Close() error { return errors.Join(p.Log.Close(), p.reads.Close()) }

func TestRedisKeepsTheContractBetweenInstances(t *testing.T) {
	t.Parallel()
	replaytest.Run(t, func(t *testing.T, l replay.Limits) replay.Log {
		s := serve(t)
		return pair{s.open(t, l), s.open(t, l)}
	})
}

// TestAStreamIsErasedByAnyInstance: the instance that ran the stream has a copy, which no reader
// gets any more.
func TestAStreamIsErasedByAnyInstance(t *testing.T) {
	t.Parallel()
	s := serve(t)
	owner, other := s.open(t, replay.Limits{}), s.open(t, replay.Limits{})
	defer closeLog(t, owner)
	defer closeLog(t, other)
	if _, err := owner.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e", Memo: "m", Began: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := owner.Append("s", "e", replay.Event{Kind: replay.Delta, Data: "secret"}, closing); err != nil {
		t.Fatal(err)
	}
	there := read(t, other, "s")
	polltest.Eventually(t, "the server has the ending", func() bool { _, _, ended := readText(t, there, 0); return ended })
	if erased, err := other.Erase(t.Context(), "s", "e"); !erased || err != nil {
		t.Fatal(erased, err)
	}
	for name, l := range map[string]*redislog.Log{"the owner": owner, "the other": other} {
		if _, err := l.Open(t.Context(), "s"); !errors.Is(err, replay.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := owner.Writer("s", "e"); !errors.Is(err, replay.ErrUnknown) {
		t.Error("the owner keeps its copy:", err)
	}
}

// TestTheServerForgetsEvictedStreams: the bytes of an instance also bound what the server keeps for
// that instance.
func TestTheServerForgetsEvictedStreams(t *testing.T) {
	t.Parallel()
	s := serve(t)
	owner, other := s.open(t, replay.Limits{Bytes: 100_000}), s.open(t, replay.Limits{})
	defer closeLog(t, owner)
	defer closeLog(t, other)
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	for _, id := range []string{"0", "1", "2"} {
		if _, err := owner.Begin(t.Context(), replay.Head{ID: id, Epoch: "e", Key: "key of " + id, Memo: strings.Repeat("m", 40_000), Began: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if err := owner.Append(id, "e", delta("text"), closing); err != nil {
			t.Fatal(err)
		}
		there := read(t, other, id)
		polltest.Eventually(t, "the server has the ending", func() bool { _, _, ended := readText(t, there, 0); return ended })
	}
	polltest.Eventually(t, "the server forgets the oldest stream", func() bool {
		return db.Exists(t.Context(), "whence:4:log:0", "whence:4:key:key of 0").Val() == 0 && db.HGet(t.Context(), "whence:4:head:0", "memo").Val() == ""
	})
	if _, err := other.Open(t.Context(), "0"); !errors.Is(err, replay.ErrUnknown) {
		t.Error("the evicted stream is read:", err)
	}
	if text, _, ended := readText(t, read(t, other, "2"), 0); text != "text" || !ended {
		t.Errorf("a stream that is kept is %q", text)
	}
}

func closeLog(t testing.TB, l replay.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// readText reads all events so far, without waiting for more.
func readText(t *testing.T, r replay.Reader, after uint64) (text string, last replay.Event, ended bool) {
	t.Helper()
	p, err := r.Read(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range p.Events {
		if e.Kind == replay.Delta {
			text += e.Data
		}
		last = e
	}
	return text, last, p.Ended
}

func read(t testing.TB, l replay.Log, id string) replay.Reader {
	t.Helper()
	r, err := l.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func delta(text string) replay.Event { return replay.Event{Kind: replay.Delta, Data: text} }

func TestStreamsContinueWithoutTheServerAndAreWrittenWhenItIsBack(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := s.open(t, replay.Limits{}), s.open(t, replay.Limits{})
	defer closeLog(t, a)
	defer closeLog(t, b)
	h, err := a.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e", Key: "k", Edge: "a"})
	if err != nil || !h.Shared {
		t.Fatal(h, err)
	}
	if err := a.Append("s", "e", delta("one ")); err != nil {
		t.Fatal(err)
	}
	here, there := read(t, a, "s"), read(t, b, "s")
	polltest.Eventually(t, "the other instance has it", func() bool { text, _, _ := readText(t, there, 0); return text == "one " })

	s.Kill(t)
	if err := a.Append("s", "e", delta("two ")); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "a reader here continues", func() bool { text, _, _ := readText(t, here, 0); return text == "one two " })
	if text, _, ended := readText(t, there, 1); text != "" || ended {
		t.Error("a reader of another instance has", text, ended)
	}
	if p, err := there.Read(t.Context(), 1); err != nil || !errors.Is(p.Missed, streamerr.Unavailable) {
		t.Error("a reader of another instance does not learn that the log cannot be read:", p.Missed, err)
	}
	if h, err := a.Begin(t.Context(), replay.Head{ID: "new"}); err != nil || h.Shared {
		t.Error("a new stream:", h, err)
	}
	if err := a.Append("new", "", delta("x"), closing); err != nil {
		t.Error(err)
	}
	if erased, err := a.Erase(t.Context(), "new", ""); !erased || err != nil {
		t.Error("a stream that only this instance has is not erased:", erased, err)
	}
	if h, err := a.Begin(t.Context(), replay.Head{ID: "x", Key: "k"}); err != nil || h.ID != "s" {
		t.Error("a key of ours:", h, err)
	}
	if h, err := a.Begin(t.Context(), replay.Head{ID: "x", Key: "other"}); !errors.Is(err, streamerr.Unavailable) {
		t.Error("a key that may be another's:", h, err)
	}
	if _, err := b.Open(t.Context(), "s"); !errors.Is(err, streamerr.Unavailable) {
		t.Error("a new reader there:", err)
	}
	if ago, ok := a.Seen(t.Context(), "s"); !ok || ago > polltest.Patience {
		t.Error("Seen reports a reader while the server is down", ago, ok)
	}

	s.Start(t) // the server has lost all data
	if err := a.Append("s", "e", delta("three")); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "a reader there continues", func() bool { text, _, _ := readText(t, there, 1); return text == "two three" })
	if err := a.Append("s", "e", closing); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the stream ends there", func() bool { _, _, ended := readText(t, there, 0); return ended })
	polltest.Eventually(t, "it ends here, once the instance has the server's answer", func() bool { _, _, ended := readText(t, here, 0); return ended })
	if text, last, _ := readText(t, here, 0); text != "one two three" || last.Seq != 4 {
		t.Error(text, last)
	}
	if h, err := b.Begin(t.Context(), replay.Head{ID: "x", Key: "k"}); err != nil || h.ID != "s" {
		t.Error("the key, there:", h, err)
	}
	if h, err := a.Begin(t.Context(), replay.Head{ID: "s3"}); err != nil || !h.Shared {
		t.Error("a new stream:", h, err)
	}
	if err := a.Append("s3", "", closing); err != nil {
		t.Error(err)
	}
}

func TestStreamOfADeadInstanceGetsOneEnding(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	a, b, c := open(t, way.addr, replay.Limits{}), s.open(t, replay.Limits{}), s.open(t, replay.Limits{})
	defer closeLog(t, b)
	defer closeLog(t, c)
	if _, err := a.Begin(t.Context(), replay.Head{ID: "s", Edge: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Append("s", "", delta("one")); err != nil {
		t.Fatal(err)
	}
	there, elsewhere, own := read(t, b, "s"), read(t, c, "s"), read(t, a, "s")
	if _, ok := a.Seen(t.Context(), "s"); ok {
		t.Error("the stream counts as seen before any reader has read it")
	}
	polltest.Eventually(t, "it is there", func() bool { text, _, _ := readText(t, there, 0); return text == "one" })
	if ago, ok := a.Seen(t.Context(), "s"); !ok || ago > polltest.Patience {
		t.Error("the stream does not count as seen although it is being read", ago, ok)
	}
	ahead := read(t, c, "s") // has seen events that the server does not have
	if text, _, ended := readText(t, ahead, 5); text != "" || ended {
		t.Error(text, ended)
	}
	way.cut() // the others consider the instance dead
	polltest.Eventually(t, "it has an ending", func() bool { _, _, ended := readText(t, there, 0); return ended })
	for _, r := range []replay.Reader{there, elsewhere} {
		if text, last, ended := readText(t, r, 0); text != "one" || last != (replay.Event{Seq: 1_000_000_002, Kind: replay.Failure, Data: "lost a"}) || !ended {
			t.Error(text, last, ended)
		}
	}
	for _, r := range []replay.Reader{ahead, read(t, b, "s")} {
		for _, after := range []uint64{2, 5} {
			if text, last, ended := readText(t, r, after); text != "" || last != (replay.Event{Seq: 1_000_000_002, Kind: replay.Failure, Data: "lost a"}) || !ended {
				t.Error("a reader that is ahead of the server:", text, last, ended)
			}
		}
		if text, last, ended := readText(t, r, 1_000_000_002); text != "" || last.Seq != 0 || !ended {
			t.Error("a reader that has the closing event:", text, last, ended)
		}
	}
	way.mend(t)
	var err error
	polltest.Eventually(t, "the instance learns that its stream has ended", func() bool {
		err = a.Append("s", "", delta("two"))
		return err != nil
	})
	for _, e := range []replay.Event{closing, {Kind: replay.Failure, Data: "{}"}} {
		if err := a.Append("s", "", e); !errors.Is(err, replay.ErrUnknown) {
			t.Error("a stream that another instance has ended takes an event:", err)
		}
	}
	if text, last, ended := readText(t, own, 1); text != "" || last.Data != "lost a" || !ended {
		t.Error("a reader of the instance gets another ending than all others:", text, last, ended)
	}
	if text, last, _ := readText(t, there, 0); text != "one" || last.Seq != 1_000_000_002 {
		t.Error("after its ending the stream has", text, last)
	}
	closeLog(t, a)
}

// TestReaderThatComesAsAnotherLeavesIsWoken: a page that is reloaded leaves and reconnects at once.
// Its tokens must not be delayed until the heartbeat wakes all readers.
func TestReaderThatComesAsAnotherLeavesIsWoken(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := s.open(t, replay.Limits{}), s.open(t, replay.Limits{})
	defer closeLog(t, a)
	defer closeLog(t, b)
	if _, err := a.Begin(t.Context(), replay.Head{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	open := func() replay.Reader {
		r, err := b.Open(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	follow := func(r replay.Reader) {
		if _, err := r.Read(t.Context(), 0); err != nil {
			t.Error(err)
		}
	}
	leaves := open()
	follow(leaves)
	for range 200 {
		comes := open()
		var both sync.WaitGroup
		both.Go(func() { follow(comes) })
		both.Go(leaves.Close) // the runtime starts the last goroutine first
		both.Wait()
		polltest.Eventually(t, "the reader learns of new events", func() bool {
			listening, err := db.PubSubNumSub(t.Context(), "whence:4:wake:s").Result()
			return err == nil && listening["whence:4:wake:s"] == 1
		})
		leaves = comes
	}
	leaves.Close()
	if err := a.Append("s", "", closing); err != nil {
		t.Error(err)
	}
}

func TestURLsAreChecked(t *testing.T) {
	for _, url := range []string{"", "localhost:6379", "http://x", "redis://h:port"} {
		if redisclient.CheckURL(url) == nil {
			t.Errorf("%q is accepted", url)
		}
	}
	if err := redisclient.CheckURL("rediss://user:pw@h:6380/2"); err != nil {
		t.Error(err)
	}
}

func TestManyStreamsAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := s.open(t, replay.Limits{}), s.open(t, replay.Limits{})
	defer closeLog(t, a)
	defer closeLog(t, b)
	ids := strings.Fields("0 1 2 3 4 5 6 7 8 9 a b c d e f g h i j k l m n o p q r s t")
	for _, id := range ids {
		if _, err := a.Begin(t.Context(), replay.Head{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 {
		for _, id := range ids {
			if err := a.Append(id, "", delta(id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, id := range ids {
		if err := a.Append(id, "", closing); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		r := read(t, b, id)
		polltest.Eventually(t, "all of "+id, func() bool {
			text, _, ended := readText(t, r, 0)
			return ended && text == strings.Repeat(id, 50)
		})
	}
}

// BenchmarkRedis measures how long a token takes to reach a reader on the instance that runs the
// stream, and on another instance.
func BenchmarkRedis(b *testing.B) {
	s := serve(b)
	runs, other := s.open(b, replay.Limits{StreamBytes: 1 << 30, Bytes: 1 << 30}), s.open(b, replay.Limits{})
	defer closeLog(b, runs)
	defer closeLog(b, other)
	for name, from := range map[string]*redislog.Log{"here": runs, "there": other} {
		b.Run(name, func(b *testing.B) {
			id := replay.NewEpoch()
			if _, err := runs.Begin(b.Context(), replay.Head{ID: id}); err != nil {
				b.Fatal(err)
			}
			r := read(b, from, id)
			b.ReportAllocs()
			for i := range b.N {
				if err := runs.Append(id, "", delta(" token")); err != nil {
					b.Fatal(err)
				}
				for {
					p, err := r.Read(b.Context(), uint64(i))
					if err != nil {
						b.Fatal(err)
					}
					if len(p.Events) > 0 {
						break
					}
					<-p.More
				}
			}
			if err := runs.Append(id, "", closing); err != nil {
				b.Fatal(err)
			}
		})
	}
}
