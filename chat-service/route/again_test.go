package route

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/chat-service/route/failover"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// losingOnce returns a worker that loses one call after this many tokens.
func losingOnce(name string, at int) *fake {
	f, lost := &fake{name: name}, false
	f.fault = func(tokens int) error {
		if tokens != at || lost {
			return nil
		}
		lost = true
		return lostBy(f)
	}
	return f
}

// refusesMoves returns a worker that refuses every answer that another worker began.
func refusesMoves(name string) *fake { return failing(name, -1, 0, streamerr.Invalid) }

// TestAnswerContinuesOnTheWorkerThatLostIt: no other worker continues the answer, so the first one
// is asked again once its probe has succeeded.
func TestAnswerContinuesOnTheWorkerThatLostIt(t *testing.T) {
	for name, others := range map[string][]*fake{
		"it is the only worker":           nil,
		"another worker refuses the move": {refusesMoves("w/1")},
		"two others refuse the move":      {refusesMoves("w/1"), refusesMoves("w/2")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w"}), ask(9), nil)
				a := losingOnce("w/0", 4)
				p := poolOf(t, Options{Policy: inOrder, Migrations: 1}, append([]*fake{a}, others...)...)
				time.AfterFunc(700*time.Millisecond, p.Members()[0].Answer)
				got := read(t.Context(), p, ask(9), nil)
				got.same(t, want)
				if got.took < 700*time.Millisecond || got.took > 800*time.Millisecond {
					t.Errorf("the stream took %v, and the probe succeeded after 700ms", got.took)
				}
				if len(a.asked) != 2 || a.asked[1].GetGenerated() != 4 {
					t.Errorf("the worker was asked %d times: %v", len(a.asked), a.asked)
				}
				for _, b := range others {
					if len(b.asked) != 1 {
						t.Errorf("%s was asked %d times", b.name, len(b.asked))
					}
				}
			})
		})
	}
}

// TestAnswerOfALostWorkerEnds: the ending is the first loss. It comes at once if the worker is gone,
// and after the grace if the worker answers its probes without taking streams.
func TestAnswerOfALostWorkerEnds(t *testing.T) {
	for name, c := range map[string]struct {
		probe  func(p *Pool) // after a second
		reason streamerr.Reason
		took   time.Duration
	}{
		"its next probe fails":    {func(p *Pool) { p.Members()[0].Say(nil) }, streamerr.PeerLost, time.Second},
		"no probe is made":        {func(*Pool) {}, streamerr.PeerLost, failover.Within},
		"it leaves the fleet":     {func(p *Pool) { p.Pretend() }, streamerr.PeerLost, failover.Within},
		"it takes no streams yet": {func(p *Pool) { p.Members()[0].AnswerNotReady() }, streamerr.PeerLost, failover.Within},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := losingOnce("w/0", 4)
				p := poolOf(t, Options{Migrations: 1}, a)
				time.AfterFunc(time.Second, func() { c.probe(p) })
				got := read(t.Context(), p, ask(9), nil)
				got.failed(t, c.reason, "w/0")
				if len(got.tokens) != 4 || len(a.asked) != 1 || got.took < c.took || got.took > c.took+100*time.Millisecond {
					t.Errorf("%d tokens, asked %d times, after %v", len(got.tokens), len(a.asked), got.took)
				}
			})
		})
	}
}

// TestStopWinsOverAWorkerThatRecovers: a stop while the stream waits for a probe is the ending.
func TestStopWinsOverAWorkerThatRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := losingOnce("w/0", 4)
		p := poolOf(t, Options{Migrations: 1}, a)
		ctx, ctl := controlled(t)
		defer ctl.Release()
		time.AfterFunc(time.Second, func() {
			ctl.Stop(errGone)
			p.Members()[0].Answer()
		})
		got := read(ctx, p, ask(9), nil)
		if e := streamerr.As(got.err); e.Reason != streamerr.ClientGone || got.took != time.Second || len(a.asked) != 1 {
			t.Error(got.err, got.took, len(a.asked))
		}
	})
}
