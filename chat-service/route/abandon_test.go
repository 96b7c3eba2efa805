package route

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A stopAt stops a stream at a step of its handover, on the goroutine of the step.
type stopAt struct {
	worker, step string
	fetched      int                // how often the decode worker must be asked for the prompt
	record       *streamv1.Handover // if the stop takes effect before the step continues; nil for none
	settles      bool               // the stop takes effect before the step continues
	patience     time.Duration      // of the decode worker, before Started
}

// TestPromptOfAStoppedStreamIsFetched stops a stream at each step of its handover. A prompt that was
// handed over is fetched exactly once, and the ending does not wait for the decode worker.
func TestPromptOfAStoppedStreamIsFetched(t *testing.T) {
	completed, abandoned := handover("r/0", "w/0", streamv1.Reason_REASON_COMPLETED), handover("r/0", "", streamv1.Reason_REASON_CLIENT_GONE)
	for _, c := range []stopAt{
		{worker: "r/0", step: "called"},
		{worker: "r/0", step: "asked"},
		{worker: "r/0", step: "started"},
		{worker: "r/0", step: "read", fetched: 1, record: abandoned},
		{worker: "r/0", step: "handed over", fetched: 1, record: abandoned},
		{worker: "r/0", step: "ended", fetched: 1, record: abandoned},
		{worker: "w/0", step: "called", fetched: 1, record: completed},
		{worker: "w/0", step: "asked", fetched: 1, record: completed},
		{worker: "w/0", step: "started", fetched: 1, record: completed},
	} {
		for _, c.settles = range []bool{false, true} {
			for _, c.patience = range []time.Duration{0, 3 * time.Second} {
				t.Run(fmt.Sprint(c.worker, " ", c.step, ", settles ", c.settles, ", decode worker starts after ", c.patience), func(t *testing.T) {
					synctest.Test(t, c.play)
				})
			}
		}
	}
}

func (c stopAt) play(t *testing.T) {
	ctx, ctl := controlled(t)
	defer ctl.Release()
	reads, answers := reader("r/0"), answerer("w/0")
	var at time.Time
	for _, f := range []*fake{reads, answers} {
		f.reached = func(step string) {
			if f.name != c.worker || step != c.step || !at.IsZero() {
				return
			}
			at = time.Now()
			ctl.Stop(errGone)
			if c.settles {
				time.Sleep(time.Microsecond)
			}
		}
	}
	answers.fault = func(tokens int) error {
		if tokens < 0 {
			time.Sleep(c.patience)
		}
		return nil
	}
	p := poolOf(t, Options{MigrateAfter: time.Minute}, reads, answers)
	got, record := readWithRecord(ctx, p, ask(12), nil)
	ended := time.Now()
	got.failed(t, streamerr.ClientGone, "")
	if took := ended.Sub(at); took > time.Millisecond {
		t.Error("the stream ended after", took)
	}
	p.calls.Wait()
	if len(answers.asked) != c.fetched || c.fetched > 0 && string(answers.asked[0].GetKvTransfer().GetParameters()) != reads.over {
		t.Errorf("the decode worker was asked %v", answers.asked)
	}
	if c.fetched > 0 && !errors.Is(answers.left(), streamerr.ClientGone) {
		t.Error("the decode worker was left because of", answers.left())
	}
	switch {
	case c.record == nil:
		checkHandovers(t, record)
	case c.settles || c.step != "ended": // otherwise the stream may have continued to the decode worker
		checkHandovers(t, record, c.record)
	}
	for _, w := range p.Members() {
		if s := w.Snapshot(time.Now()); w.Load() != 0 || s.Unread != 0 || !good(w) {
			t.Errorf("%s still has %d streams and %d tokens to read, in good standing: %t", w.Name(), w.Load(), s.Unread, good(w))
		}
	}
}

// A decode worker that sends nothing is stopped in the end.
func TestFetchOfAStoppedStreamIsBounded(t *testing.T) {
	for _, step := range []string{"ended", "asked"} { // of the prefill worker, and of the decode worker
		synctest.Test(t, func(t *testing.T) {
			ctx, ctl := controlled(t)
			defer ctl.Release()
			reads, answers := reader("r/0"), answerer("w/0")
			answers.fault = func(int) error { return errHang }
			stopped := reads
			if step == "asked" {
				stopped = answers
			}
			stopped.reached = func(reached string) {
				if reached == step {
					ctl.Stop(errGone)
				}
			}
			p := poolOf(t, Options{MigrateAfter: time.Minute}, reads, answers)
			got, _ := readWithRecord(ctx, p, ask(12), nil)
			got.failed(t, streamerr.ClientGone, "")
			ended := time.Now()
			p.calls.Wait()
			if took := time.Since(ended); took != fetchWithin || len(answers.causes) != 1 || !errors.Is(answers.causes[0], streamerr.ClientGone) {
				t.Errorf("after %s: the decode worker was left after %v: %v", step, took, answers.causes)
			}
		})
	}
}

// A decode worker that a stream leaves before it has sent a message still fetches the prompt that was
// read for it.
func TestPromptOfAStreamThatMovesIsFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, slow, next := reader("r/0"), answerer("w/0"), answerer("w/1")
		slow.fault = func(tokens int) error {
			if tokens < 0 {
				time.Sleep(2 * time.Second)
			}
			return nil
		}
		p := poolOf(t, Options{Migrations: 3, MigrateAfter: time.Second, Policy: inOrder}, reads, slow, next)
		got, record := readWithRecord(t.Context(), p, ask(12), nil)
		if got.err != nil {
			t.Fatal(got.err)
		}
		p.calls.Wait()
		if len(reads.asked) != 2 || len(slow.asked) != 1 || len(next.asked) != 1 || !errors.Is(slow.left(), streamerr.Deadline) {
			t.Error(reads.asked, slow.asked, next.asked, slow.left())
		}
		done := streamv1.Reason_REASON_COMPLETED
		checkHandovers(t, record, handover("r/0", "w/0", done), handover("r/0", "w/1", done))
	})
}
