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
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestBeginThatTheServerAnsweredTooLateLeavesNoStream: the instance gives up waiting, but the
// server executes the begin. A retry with the same key must not get that stream, because no
// instance runs it.
func TestBeginThatTheServerAnsweredTooLateLeavesNoStream(t *testing.T) {
	for _, name := range []string{"the same instance retries", "another instance retries"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			way := newProxy(t, s.Addr)
			slow := openTimed(t, way.addr, redislog.Timeouts{Server: time.Second, Begin: 2 * time.Second})
			retries := slow
			if name == "another instance retries" {
				retries = openLeased(t, s.Addr, replay.Limits{}, slog.DiscardHandler, patient)
				defer closeLog(t, retries)
			}
			defer closeLog(t, slow)
			db := redis.NewClient(&redis.Options{Addr: s.Addr})
			defer db.Close()
			key := orphaned(t, slow, way, db)
			polltest.Eventually(t, "the retry begins a new stream", func() bool {
				h, err := retries.Begin(t.Context(), replay.Head{ID: "retry", Epoch: "f", Key: key})
				if err != nil && (!errors.Is(err, streamerr.Unavailable) || streamerr.As(err).RetryAfter == 0) {
					t.Fatal(err)
				}
				if err == nil && h.ID != "retry" {
					t.Fatalf("the retry got the stream %q, which no instance runs", h.ID)
				}
				return err == nil
			})
			if err := retries.Append("retry", "f", delta("said"), closing); err != nil {
				t.Fatal(err)
			}
			third := openLeased(t, s.Addr, replay.Limits{}, slog.DiscardHandler, patient)
			defer closeLog(t, third)
			for _, l := range []*redislog.Log{retries, third} {
				var text string
				polltest.Eventually(t, "each instance reads the stream of the retry", func() (ended bool) {
					r, err := l.Open(t.Context(), "retry")
					if err != nil {
						return false
					}
					defer r.Close()
					text, _, ended = readText(t, r, 0)
					return ended
				})
				if text != "said" {
					t.Errorf("%q", text)
				}
			}
		})
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
	for i := range 100 {
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
		polltest.Eventually(t, name+" lives as long as a live stream", func() bool { return db.PTTL(t.Context(), name).Val().Minutes() > 30 })
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
func orphaned(t *testing.T, l *redislog.Log, way *proxy, db *redis.Client) (key string) {
	t.Helper()
	for attempt := range 100 { // the begin may not be sent if another command uses the instance's connection, or may have expired
		orphan, last := fmt.Sprint("orphan-", attempt), fmt.Sprint("last-", attempt)
		key = "key-" + orphan
		way.hold()
		h, err := l.Begin(t.Context(), replay.Head{ID: orphan, Epoch: "e", Key: key})
		way.pass()
		if !errors.Is(err, streamerr.Unavailable) {
			t.Fatalf("a begin without an answer: %v, %v", h, err)
		}
		polltest.Eventually(t, "the server answers again", func() bool {
			_, err := l.Begin(t.Context(), replay.Head{ID: last, Epoch: "e"})
			return err == nil && state(t, db, last) != ""
		})
		if err := l.Append(last, "e", closing); err != nil {
			t.Fatal(err)
		}
		switch now := state(t, db, orphan); now {
		case "beginning":
			return key
		case "":
		default:
			t.Fatalf("a stream that its instance has given up is %s", now)
		}
	}
	t.Fatal("the server begins no stream after its instance has given up")
	return ""
}
