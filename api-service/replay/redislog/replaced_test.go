package redislog_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/redislog"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
)

// TestStreamWhoseIDIsTakenOnTheServerContinuesLocally: the server loses a stream, and another
// instance begins a stream under the same id. The first stream continues on its own instance only,
// and does not affect the second, even when the first is forgotten.
func TestStreamWhoseIDIsTakenOnTheServerContinuesLocally(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var logs logtest.Log
	a, b := openLogging(t, s.Addr, replay.Limits{}, slog.NewTextHandler(&logs, nil)), s.open(t, replay.Limits{})
	defer closeLog(t, a)
	defer closeLog(t, b)
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	if _, err := a.Begin(t.Context(), replay.Head{ID: "s", Epoch: "first"}); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the first stream is live", func() bool { return state(t, db, "s") == "live" })
	if err := db.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Begin(t.Context(), replay.Head{ID: "s", Epoch: "second"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Append("s", "first", delta("one")); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the first stream gives the server up", func() bool { return logs.Count("another stream has the id") > 0 })
	if text, _, _ := readText(t, read(t, a, "s"), 0); text != "one" {
		t.Errorf("the first stream says %q at its own instance", text)
	}
	a.Forget(t.Context(), "s", "first")
	if _, err := a.Open(t.Context(), "s"); err != nil && !errors.Is(err, replay.ErrUnknown) {
		t.Error(err)
	}
	if err := b.Append("s", "second", delta("two"), closing); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "other instances read the second stream", func() bool {
		r, err := a.Open(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		text, _, ended := readText(t, r, 0)
		return ended && text == "two"
	})
}

// TestEventsOfAnEvictedStreamAreNotShownByTheNext: the server evicts the head of a stream but keeps
// its events, and a client begins another stream under the same id.
func TestEventsOfAnEvictedStreamAreNotShownByTheNext(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := s.open(t, replay.Limits{}), s.open(t, replay.Limits{})
	defer closeLog(t, a)
	defer closeLog(t, b)
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	if err := db.XAdd(t.Context(), &redis.XAddArgs{Stream: "whence:4:log:s", ID: "7-0", Values: []string{"kind", string(replay.Delta), "data", "secret"}}).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Begin(t.Context(), replay.Head{ID: "s", Epoch: "second"}); err != nil {
		t.Fatal(err)
	}
	if text, last, _ := readText(t, read(t, b, "s"), 0); text != "" || last.Seq != 0 {
		t.Errorf("the second stream begins with %q of the first one", text)
	}
	if err := a.Append("s", "second", delta("own"), closing); err != nil {
		t.Fatal(err)
	}
	r := read(t, b, "s")
	polltest.Eventually(t, "the second stream ends", func() bool {
		text, _, ended := readText(t, r, 0)
		return ended && text == "own"
	})
}

// TestReaderOfAReplacedStreamReadsNothingOfTheNext: a reader opens a stream, and reads only after
// another stream has taken the id and has a reader.
func TestReaderOfAReplacedStreamReadsNothingOfTheNext(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b, c := s.open(t, replay.Limits{}), s.open(t, replay.Limits{}), s.open(t, replay.Limits{})
	defer closeLog(t, a)
	defer closeLog(t, b)
	defer closeLog(t, c)
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	if _, err := a.Begin(t.Context(), replay.Head{ID: "s", Epoch: "first"}); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the first stream is live", func() bool { return state(t, db, "s") == "live" })
	first := read(t, c, "s")
	if err := db.Del(t.Context(), "whence:4:head:s", "whence:4:log:s").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Begin(t.Context(), replay.Head{ID: "s", Epoch: "second"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Append("s", "second", delta("two"), closing); err != nil {
		t.Fatal(err)
	}
	second := read(t, c, "s")
	polltest.Eventually(t, "the second stream is read", func() bool { text, _, _ := readText(t, second, 0); return text == "two" })
	if text, _, ended := readText(t, first, 0); text != "" || ended {
		t.Errorf("the reader of the first stream has %q of the second one", text)
	}
	a.Forget(t.Context(), "s", "first")
}

// TestCursorMayBeAheadOfTheServer: the owner of a stream has shown a reader more than it has
// written, and the reader reconnects to another instance.
func TestCursorMayBeAheadOfTheServer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b, c := s.open(t, replay.Limits{}), s.open(t, replay.Limits{}), openTimed(t, s.Addr, redislog.Timeouts{Ahead: 100 * time.Millisecond})
	defer closeLog(t, a)
	defer closeLog(t, b)
	defer closeLog(t, c)
	if _, err := a.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Append("s", "e", delta("one")); err != nil {
		t.Fatal(err)
	}
	back, wrong := read(t, b, "s"), read(t, c, "s")
	for _, r := range []replay.Reader{back, wrong} {
		if p, err := r.Read(t.Context(), 3); err != nil || len(p.Events) > 0 || p.Ended || p.More == nil {
			t.Fatalf("a cursor that is ahead gets %v, %v", p, err)
		}
	}
	if err := a.Append("s", "e", delta("two"), delta("three"), delta("four")); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the reader continues", func() bool { text, _, _ := readText(t, back, 3); return text == "four" })
	polltest.Eventually(t, "a wrong cursor is refused", func() bool {
		_, err := wrong.Read(t.Context(), 100)
		return errors.Is(err, replay.ErrAhead)
	})
	if err := a.Append("s", "e", closing); err != nil {
		t.Fatal(err)
	}
}
