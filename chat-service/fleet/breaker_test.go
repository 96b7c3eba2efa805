package fleet

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A breakerClock drives a breaker in virtual time.
type breakerClock struct {
	breaker
	now time.Time
}

func (c *breakerClock) want(t *testing.T, what string, want Standing) {
	t.Helper()
	if got := c.standing(c.now); got != want {
		t.Errorf("%s: standing %d, want %d", what, got, want)
	}
}

func (c *breakerClock) pass(d time.Duration) { c.now = c.now.Add(d) }

func TestCooldownGrowsWithRepeatedFailures(t *testing.T) {
	c := breakerClock{now: time.Unix(0, 0)}
	for i, seconds := range []int{0, 0, 1, 2, 4, 8, 16, 30, 30} {
		want := time.Duration(seconds) * time.Second
		if i > 2 {
			c.want(t, "after the cool-down", OnTrial)
			trial := c.begin(c.now)
			c.want(t, "while a trial runs", Poor)
			c.end(trial) // the call is over, and its failure is reported next
		} else {
			c.want(t, "before", Good)
		}
		got := time.Duration(0)
		for range 20 { // all streams of the worker fail together
			got = max(got, c.fail(c.now, streamerr.EngineFailed))
		}
		if got != want {
			t.Errorf("failure %d: cool-down of %v, want %v", i, got, want)
		}
		c.want(t, "before a probe", Poor)
		c.answered()
		if want > 0 {
			c.pass(want - time.Nanosecond)
			c.want(t, "during the cool-down", Poor)
			c.pass(time.Nanosecond)
		}
	}
	c.begin(c.now)
	for range 10 {
		c.deliver(c.now)
	}
	c.want(t, "after a successful trial", Good)
	if d := c.fail(c.now, streamerr.EngineFailed); d != 0 {
		t.Error("a single failure after recovery ejects the worker for", d)
	}
	c.reset()
	c.want(t, "a new process", Good)
}

// A worker that fails every second stream never fails three times in a row.
func TestWorkerThatFailsOftenIsEjectedByItsRate(t *testing.T) {
	c := breakerClock{now: time.Unix(0, 0)}
	streams := 0
	// ten requests per second
	for end := c.now.Add(time.Minute); c.now.Before(end); c.pass(100 * time.Millisecond) {
		c.answered()
		if c.standing(c.now) == Poor {
			continue
		}
		trial := c.begin(c.now)
		if streams++; streams%2 == 0 {
			c.fail(c.now, streamerr.EngineFailed)
		} else {
			c.deliver(c.now)
		}
		c.end(trial)
	}
	if streams > 120 {
		t.Errorf("a worker that fails every second stream got %d of 600", streams)
	}
}

func TestFullWorkerCoolsDownAtOnceAndRecoversWithATrial(t *testing.T) {
	c := breakerClock{now: time.Unix(0, 0)}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second} {
		if got := c.refuse(c.now, 0); got != want {
			t.Errorf("refusal %d: cool-down of %v, want %v", i, got, want)
		}
		if c.refuse(c.now, 0) != 0 {
			t.Error("a refusal during the cool-down counts again")
		}
		c.pass(want)
		c.want(t, "after the cool-down", OnTrial)
	}
	trial := c.begin(c.now)
	c.end(trial)
	c.want(t, "a trial whose client left", OnTrial)
	c.begin(c.now)
	c.deliver(c.now)
	c.want(t, "a trial that delivered", Good)
	if got := c.refuse(c.now, 20*time.Second); got != 20*time.Second {
		t.Error("Retry-After of 20 s gives", got)
	}
	c.refuse(c.now, time.Hour)
	if c.pass(time.Minute); c.standing(c.now) != OnTrial {
		t.Error("a Retry-After is not bounded")
	}
}

func TestEndOfAnOldTrialDoesNotEndTheNextTrial(t *testing.T) {
	c := breakerClock{now: time.Unix(0, 0)}
	c.refuse(c.now, 0)
	c.pass(time.Second)
	old := c.begin(c.now)
	c.refuse(c.now, 0) // the trial is decided, but its stream has not ended
	c.pass(2 * time.Second)
	c.begin(c.now)
	c.end(old)
	c.want(t, "while the second trial runs", Poor)
}

func TestFailuresCountAsLoadForAWhile(t *testing.T) {
	c := breakerClock{now: time.Unix(0, 0)}
	c.fail(c.now, streamerr.EngineFailed)
	if got := c.failures(c.now); got != 1 {
		t.Error(got)
	}
	if got := c.failures(c.now.Add(failureHalfLife)); got != 0.5 {
		t.Error(got)
	}
	if got := c.failures(c.now.Add(time.Minute)); got != 0 {
		t.Error(got)
	}
}

func TestStreamsAreNotifiedWhenTheirWorkerIsDown(t *testing.T) {
	w := Pretended("w/0", nil)
	var heard atomic.Int32
	var hearing sync.WaitGroup
	after := func() (undo func()) { return w.AfterDown(func() { heard.Add(1); hearing.Done() }) }
	hearing.Add(1)
	undo := after() // the worker was never healthy
	hearing.Wait()
	undo()
	w.Say(info("w/0"))
	hearing.Add(3)
	first, _, left, _ := after(), after(), after(), after()
	left()
	left()
	if got := heard.Load(); got != 1 {
		t.Errorf("%d streams are notified that a healthy worker is down", got-1)
	}
	w.Say(nil)
	w.Say(info("w/0"))
	hearing.Wait() // the worker was down for a moment
	first()
	hearing.Add(1)
	after()
	w.Say(nil)
	hearing.Wait()
	if got := heard.Load(); got != 5 {
		t.Errorf("%d calls, want 5: one for each stream that has not left", got)
	}
}

func TestDoubtsWithoutATokenBetweenThemAreAFailure(t *testing.T) {
	var b breaker
	now := time.Now()
	for range 5 { // these requests fail everywhere, and the worker answers others
		for range ejectAfter - 1 {
			if b.doubt() {
				t.Fatal("a worker that answers is blamed")
			}
		}
		b.deliver(now)
	}
	for i := range ejectAfter {
		if last := i == ejectAfter-1; b.doubt() != last {
			t.Errorf("doubt %d", i+1)
		}
	}
}
