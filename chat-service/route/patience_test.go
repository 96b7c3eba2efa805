package route

import (
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// hangsAt returns a worker that falls silent after this many tokens.
func hangsAt(name string, at int) *fake {
	return &fake{name: name, fault: func(tokens int) error {
		if tokens == at {
			return errHang
		}
		return nil
	}}
}

func TestHungWorkerIsLeftBeforeItsFirstToken(t *testing.T) {
	for name, c := range map[string]struct {
		opts Options
		down time.Duration // when its probes fail; 0 means never
		want time.Duration // when another worker answers
	}{
		"its probes fail":               {Options{FirstTokenMove: 10 * time.Second}, 4 * time.Second, 4 * time.Second},
		"its probes answer":             {Options{FirstTokenMove: 10 * time.Second}, 0, 10 * time.Second},
		"its probes fail, and no timer": {Options{}, 4 * time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hung, good := hangsAt("w/0", 0), &fake{name: "w/1"}
				c.opts.Policy = inOrder
				p := poolOf(t, c.opts, hung, good)
				if c.down > 0 {
					time.AfterFunc(c.down, func() { p.Members()[0].Say(nil) })
				}
				got, record := readWithRecord(t.Context(), p, ask(9), nil)
				if got.err != nil || len(got.tokens) != 9 || got.started != 1 || got.took < c.want || got.took > c.want+100*time.Millisecond {
					t.Errorf("%d tokens, %v, after %v", len(got.tokens), got.err, got.took)
				}
				if moves := record.GetMoves(); len(moves) != 1 || moves[0].GetFrom() != "w/0" || moves[0].GetTokens() != 0 {
					t.Error(moves)
				}
				p.calls.Wait()
				if len(hung.causes) != 1 {
					t.Error("the hung worker was not told why it was left:", hung.causes)
				}
			})
		})
	}
}

func TestHungWorkerIsLeftAfterAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, hung, good := &fake{name: "w/0"}, hangsAt("w/1", 3), &fake{name: "w/2"}
		lost.fault = func(tokens int) error {
			if tokens == 3 {
				return lostBy(lost)
			}
			return nil
		}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 3, MigrateAfter: 5 * time.Second, FirstTokenMove: 10 * time.Second}, lost, hung, good)
		time.AfterFunc(4*time.Second, func() { p.Members()[1].Say(nil) })
		got := read(t.Context(), p, ask(9), nil)
		if got.err != nil || len(got.tokens) != 9 || got.took > 4100*time.Millisecond {
			t.Error(len(got.tokens), got.err, got.took)
		}
	})
}

// A long prompt takes long to read, and so does a short prompt behind it.
func TestPatienceGrowsWithUnreadTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, idle := &fake{name: "w/0"}, &fake{name: "w/1"}
		slow.fault = func(tokens int) error {
			if tokens == 0 {
				time.Sleep(25 * time.Second)
			}
			return nil
		}
		p := poolOf(t, Options{Policy: inOrder, FirstTokenMove: 10 * time.Second}, slow, idle)
		for _, w := range p.Members() {
			long := info(w.Name())
			long.ContextLength = 1 << 20
			w.Say(long)
		}
		before := p.Members()[0].Charge(16384, 0)
		defer before.End()
		if got := read(t.Context(), p, ask(9), nil); got.err != nil || len(idle.asked) != 0 || got.took < 25*time.Second {
			t.Error(got.err, len(idle.asked), got.took)
		}
	})
}

// If the queues are equally long everywhere, a move would only mean to queue again.
func TestSlowFirstTokenStaysIfNoWorkerHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, full := &fake{name: "w/0"}, &fake{name: "w/1"}
		slow.fault = func(tokens int) error {
			if tokens == 0 {
				time.Sleep(time.Minute)
			}
			return nil
		}
		p := poolOf(t, Options{Policy: inOrder, FirstTokenMove: 10 * time.Second}, slow, full)
		said := info("w/1")
		said.Load = &llmv1.Load{MaxRunning: 1, Running: 1}
		p.Members()[1].Say(said)
		busy := p.Members()[1].Charge(1, 0)
		defer busy.End()
		if got := read(t.Context(), p, ask(9), nil); got.err != nil || len(full.asked) != 0 || !good(p.Members()[0]) {
			t.Error(got.err, len(full.asked))
		}
	})
}

func TestWorkersOwnDeadlineIsRetriedAndBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, good := &fake{name: "w/0"}, &fake{name: "w/1"}
		slow.fault = func(tokens int) error {
			if tokens == 0 {
				time.Sleep(2 * time.Second)
				return &streamerr.Error{Reason: streamerr.Deadline, Path: streamerr.NewPath("w/0"), Message: "there was no token within 2s"}
			}
			return nil
		}
		p := poolOf(t, Options{Policy: inOrder}, slow, good)
		got, record := readWithRecord(t.Context(), p, ask(9), nil)
		if got.err != nil || len(good.asked) != 1 || p.Members()[0].Snapshot(time.Now()).Standing == 0 {
			t.Error(got.err, len(good.asked))
		}
		if moves := record.GetMoves(); len(moves) != 1 || moves[0].GetReason() != streamv1.Reason_REASON_DEADLINE {
			t.Error(moves)
		}
	})
}
