package coarse_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/internal/coarse"
)

func TestTimersFireALittleLate(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 5, time.Millisecond, 250 * time.Millisecond, 2 * time.Second, 2500 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(123456789)
			var c coarse.Clock
			began, fired := time.Now(), time.Duration(-1)
			c.NewTimer(func() { fired = time.Since(began) }).Reset(d)
			time.Sleep(2*d + time.Second)
			synctest.Wait()
			if fired < d || fired > d+min(d/16+1, 1<<27) {
				t.Errorf("a timer of %v fired after %v", d, fired)
			}
		})
	}
}

func TestTimersShareWakeUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coarse.Clock
		times, fired := map[time.Time]bool{}, 0
		for range 1000 {
			c.NewTimer(func() { times[time.Now()] = true; fired++ }).Reset(2 * time.Second)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if fired != 1000 || len(times) > 17 {
			t.Errorf("%d timers fired in %d wake-ups", fired, len(times))
		}
	})
}

func TestTimerCanBeStoppedAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coarse.Clock
		fired := map[string]int{}
		timer := func(name string) *coarse.Timer { return c.NewTimer(func() { fired[name]++ }) }
		never, stopped, later, first, last := timer("never"), timer("stopped"), timer("later"), timer("first"), timer("last")
		var again *coarse.Timer
		again = c.NewTimer(func() {
			if fired["again"]++; fired["again"] < 5 {
				again.Reset(time.Second)
			}
			last.Stop() // due in the same wake-up or a later one
		})
		never.Stop()
		for _, x := range []*coarse.Timer{first, stopped, later, again} {
			x.Reset(time.Second)
		}
		stopped.Stop()
		stopped.Stop()
		later.Reset(20 * time.Second)
		last.Reset(2 * time.Second)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if fired["first"] != 1 || fired["again"] != 5 || len(fired) != 2 {
			t.Errorf("after ten seconds: %v", fired)
		}
		first.Reset(time.Minute) // after a slot that becomes empty
		later.Stop()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if fired["first"] != 2 || len(fired) != 2 {
			t.Errorf("at the end: %v", fired)
		}
	})
}

// TestShorterTimerOvertakes: a timer that is set later may be due earlier.
func TestShorterTimerOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coarse.Clock
		began := time.Now()
		var order []time.Duration
		for _, d := range []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond} {
			c.NewTimer(func() { order = append(order, time.Since(began).Round(d)) }).Reset(d)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if len(order) != 4 || order[0] != time.Millisecond || order[1] != time.Second || order[2] != time.Minute || order[3] != time.Hour {
			t.Errorf("fired at %v", order)
		}
	})
}

func BenchmarkResetAndStop(b *testing.B) {
	var c coarse.Clock
	timer := c.NewTimer(func() {})
	b.ReportAllocs()
	for b.Loop() {
		timer.Reset(time.Minute)
		timer.Stop()
	}
}

// TestClocksWakeUpTogether: Clocks that were first used at different times have the same wake-up
// times.
func TestClocksWakeUpTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, second coarse.Clock
		var times [2]time.Time
		first.NewTimer(func() {}).Reset(time.Second)
		time.Sleep(61*time.Second + 7*time.Millisecond)
		first.NewTimer(func() { times[0] = time.Now() }).Reset(5 * time.Second)
		time.Sleep(time.Millisecond)
		second.NewTimer(func() { times[1] = time.Now() }).Reset(5 * time.Second)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if times[0].IsZero() || !times[0].Equal(times[1]) {
			t.Errorf("two timers fired at %v", times)
		}
	})
}
