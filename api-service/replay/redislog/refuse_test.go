package redislog_test

import (
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/internal/polltest"
)

// TestKeyOfARefusedStreamIsFreedAfterAnOutage: the server was away, or has lost its data, when the
// stream was refused. Once it answers, a retry with the key begins a stream, on any instance.
func TestKeyOfARefusedStreamIsFreedAfterAnOutage(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"it was away": false, "it has lost its data": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			p := newProxy(t, s.Addr)
			l := open(t, p.addr, replay.Limits{})
			other := s.open(t, replay.Limits{})
			defer closeLog(t, l)
			defer closeLog(t, other)
			if h, err := l.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e", Key: "k", Began: time.Now()}); err != nil || h.ID != "s" {
				t.Fatal(h, err)
			}
			polltest.Eventually(t, "the stream is live on the server", func() bool {
				h, err := other.Begin(t.Context(), replay.Head{ID: "first", Epoch: "e", Key: "k", Began: time.Now()})
				return err == nil && h.ID == "s"
			})
			p.cut()
			l.Refuse(t.Context(), "s", "e", replay.Event{Kind: replay.Failure, Data: "{}"})
			if restart {
				s.Kill(t)
				s.Start(t)
			}
			p.mend(t)
			polltest.Eventually(t, "a retry begins a stream", func() bool {
				h, err := other.Begin(t.Context(), replay.Head{ID: "retry", Epoch: "e", Key: "k", Began: time.Now()})
				return err == nil && h.ID == "retry"
			})
		})
	}
}
