package redislog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/redislog"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestBeginThatTheServerAnsweredTooLateLeavesNoStream: the instance gives up waiting, but the
// server executes the begin. A retry with the same key must not get that stream, because no
// instance runs it.
func TestBeginThatTheServerAnsweredTooLateLeavesNoStream(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	slow, other := openLeased(t, way.addr, replay.Limits{}, slog.DiscardHandler, patient), openLeased(t, s.Addr, replay.Limits{}, slog.DiscardHandler, patient)
	defer closeLog(t, slow)
	defer closeLog(t, other)
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	for _, l := range []*redislog.Log{slow, other} { // loads the scripts into the server
		id := replay.NewEpoch()
		if _, err := l.Begin(t.Context(), replay.Head{ID: id}); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(id, "", closing); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its connection is free", func() bool { return state(t, db, id) == "ended" })
	}
	for name, retries := range map[string]*redislog.Log{"same": slow, "other": other} {
		key := orphaned(t, slow, way, db, name)
		retry := "retry-" + name
		eventually(t, "the retry begins a new stream", func() bool {
			h, err := retries.Begin(t.Context(), replay.Head{ID: retry, Epoch: "f", Key: key})
			if err != nil && (!errors.Is(err, streamerr.Unavailable) || streamerr.As(err).RetryAfter == 0) {
				t.Fatalf("%s: %v", name, err)
			}
			if err == nil && h.ID != retry {
				t.Fatalf("%s: the retry got the stream %q, which no instance runs", name, h.ID)
			}
			return err == nil
		})
		if err := retries.Append(retry, "f", delta("said"), closing); err != nil {
			t.Fatal(err)
		}
		for _, l := range []*redislog.Log{slow, other} {
			var text string
			r := read(t, l, retry)
			eventually(t, "each instance reads the stream of the retry", func() (ended bool) {
				text, _, ended = readText(t, r, 0)
				return ended
			})
			if text != "said" {
				t.Errorf("%s: %q", name, text)
			}
		}
	}
}

// TestBeginTriesAgainIfTheStreamOfItsKeyIsForgottenMeanwhile: the key of the forgotten stream is
// free, so the other instance must get a stream.
func TestBeginTriesAgainIfTheStreamOfItsKeyIsForgottenMeanwhile(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := openLeased(t, s.Addr, replay.Limits{}, slog.DiscardHandler, patient), openLeased(t, s.Addr, replay.Limits{}, slog.DiscardHandler, patient)
	defer closeLog(t, a)
	defer closeLog(t, b)
	for i := range 200 {
		key, first, retry := fmt.Sprint("k", i), fmt.Sprint("first", i), fmt.Sprint("retry", i)
		if _, err := a.Begin(t.Context(), replay.Head{ID: first, Epoch: "e", Key: key}); err != nil {
			t.Fatal(err)
		}
		var forgetting sync.WaitGroup
		forgetting.Go(func() { a.Forget(context.Background(), first, "e") })
		h, err := b.Begin(t.Context(), replay.Head{ID: retry, Epoch: "e", Key: key})
		forgetting.Wait()
		if err != nil || h.ID != first && h.ID != retry {
			t.Fatalf("try %d: %+v, %v", i, h, err)
		}
		b.Forget(t.Context(), retry, "e")
	}
}

// TestStreamWithoutTokensOutlivesBeginTTL: a stream that waits for its first token is not an
// orphan.
func TestStreamWithoutTokensOutlivesBeginTTL(t *testing.T) {
	t.Parallel()
	s := serve(t)
	l := s.open(t, replay.Limits{})
	defer closeLog(t, l)
	if _, err := l.Begin(t.Context(), replay.Head{ID: "quiet", Epoch: "e", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	for _, name := range []string{"whence:4:head:quiet", "whence:4:key:k"} {
		eventually(t, name+" lives as long as a live stream", func() bool { return db.PTTL(t.Context(), name).Val().Minutes() > 30 })
	}
	if now := state(t, db, "quiet"); now != "live" {
		t.Errorf("a stream without events is %s", now)
	}
	if err := l.Append("quiet", "e", closing); err != nil {
		t.Fatal(err)
	}
}

// orphaned makes an instance give up waiting for a begin that the server then executes, and returns
// the key.
func orphaned(t *testing.T, l *redislog.Log, way *proxy, db *redis.Client, name string) (key string) {
	t.Helper()
	for attempt := range 10 { // the begin may not be sent if another command uses the instance's connection
		orphan := fmt.Sprint("orphan-", name, attempt)
		key = "key-" + orphan
		way.hold()
		h, err := l.Begin(t.Context(), replay.Head{ID: orphan, Epoch: "e", Key: key})
		way.pass()
		if !errors.Is(err, streamerr.Unavailable) {
			t.Fatalf("a begin without an answer: %v, %v", h, err)
		}
		for begun := time.Now(); time.Since(begun) < time.Second; time.Sleep(5 * time.Millisecond) {
			switch now := state(t, db, orphan); now {
			case "beginning":
				return key
			case "":
			default:
				t.Fatalf("a stream that its instance has given up is %s", now)
			}
		}
	}
	t.Fatal("the server begins no stream after its instance has given up")
	return ""
}
