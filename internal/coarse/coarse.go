// Package coarse has timers that share wake-ups.
//
// Thousands of streams each check periodically that nothing is stuck. With timers of the runtime,
// each check wakes an idle process, starts a goroutine, and makes the scheduler wake a second
// thread to look for more work. Together that costs about as much as a token. The timers of a Clock
// fire a little late, so that timers due at about the same time fire in one wake-up, on one
// goroutine.
package coarse

import (
	"container/heap"
	"math/bits"
	"sync"
	"time"
)

const (
	// maxLate is the maximum delay of a timer, in addition to the runtime's: 2^27 ns, 134 ms.
	maxLate = 1 << 27
	// A timer may fire late by its duration divided by lateness.
	lateness = 16
)

// A Clock has timers. The zero Clock is ready to use. It must not be copied.
type Clock struct {
	mu    sync.Mutex
	base  time.Time // aligned to the longest step since 1970, so that the Clocks of a machine wake up together
	slots map[time.Duration]*slot
	times times       // the keys of slots, as a heap
	timer *time.Timer // fires for the earliest slot; nil before the first use
	armed bool        // timer is running
	fires bool        // fire is running
}

// A slot is the list of the timers that fire together, in no particular order.
type slot struct{ first *Timer }

// A Timer calls its function when it fires.
type Timer struct {
	clock *Clock
	f     func()

	in         *slot // nil while the timer does not run; the clock's mu guards this and the list
	next, prev *Timer
}

// NewTimer returns a timer that is not running. f is called each time the timer fires. f must not
// block, because other timers of c wait for it. f may reset and stop timers.
func (c *Clock) NewTimer(f func()) *Timer {
	t := new(Timer)
	t.Init(c, f)
	return t
}

// Init makes t, which has not been used before, a timer of c, as NewTimer does. It must not be copied
// any more.
func (t *Timer) Init(c *Clock, f func()) { t.clock, t.f = c, f }

// Reset makes t fire once, after d plus at most a sixteenth of d, and at most 134 ms late.
func (t *Timer) Reset(d time.Duration) {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	t.remove()
	now := c.now()
	s, fresh := c.slot(roundUp(now+max(d, 0), late(d)))
	t.in, t.next = s, s.first
	if s.first != nil {
		s.first.prev = t
	}
	s.first = t
	if fresh && !c.fires && (!c.armed || c.slots[c.times[0]] == s) {
		c.arm(now)
	}
}

// Stop prevents t from firing. It does not wait for a running call of t's function.
func (t *Timer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.remove()
	t.clock.tidy()
}

// remove removes t from its slot. The caller holds the clock's mu.
func (t *Timer) remove() {
	if t.in == nil {
		return
	}
	if t.prev == nil {
		t.in.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	t.in, t.next, t.prev = nil, nil, nil
}

// now returns the time since base. The caller holds mu.
func (c *Clock) now() time.Duration {
	now := time.Now()
	if c.base.IsZero() {
		c.base, c.slots = now.Add(-time.Duration(now.UnixNano()&(maxLate-1))), map[time.Duration]*slot{}
	}
	return now.Sub(c.base)
}

// slot returns the slot of a time. fresh reports that the slot is new. The caller holds mu.
func (c *Clock) slot(at time.Duration) (s *slot, fresh bool) {
	if s = c.slots[at]; s != nil {
		return s, false
	}
	s = &slot{}
	c.slots[at] = s
	heap.Push(&c.times, at)
	return s, true
}

// tidy drops the earliest slots if they are empty, and stops the Clock's timer if no slot is left.
// The caller holds mu.
func (c *Clock) tidy() {
	for len(c.times) > 0 && c.slots[c.times[0]].first == nil {
		delete(c.slots, heap.Pop(&c.times).(time.Duration)) //nolint:forcetypeassert // times has nothing else
	}
	if len(c.times) == 0 && c.armed && !c.fires {
		c.armed = false
		c.timer.Stop()
	}
}

// arm sets the Clock's timer to the earliest slot. The caller holds mu.
func (c *Clock) arm(now time.Duration) {
	c.armed = true
	wait := c.times[0] - now
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, c.fire)
	} else {
		c.timer.Reset(wait)
	}
}

// fire fires all timers that are due.
func (c *Clock) fire() {
	c.mu.Lock()
	c.fires = true
	for len(c.times) > 0 && c.times[0] <= c.now() {
		s := c.slots[c.times[0]]
		for t := s.first; t != nil; t = s.first {
			t.remove()
			c.mu.Unlock()
			t.f()
			c.mu.Lock()
		}
		c.tidy()
	}
	c.fires, c.armed = false, false
	if len(c.times) > 0 {
		c.arm(c.now())
	}
	c.mu.Unlock()
}

// late returns the maximum delay of a timer with duration d, rounded down to a power of two.
func late(d time.Duration) time.Duration {
	return time.Duration(1) << max(0, bits.Len64(uint64(min(max(d/lateness, 1), maxLate)))-1) //nolint:gosec // positive
}

// roundUp returns the first multiple of step, a power of two, that is at least d.
func roundUp(d, step time.Duration) time.Duration { return (d + step - 1) &^ (step - 1) }

// times is a heap.
type times []time.Duration

func (t *times) Len() int           { return len(*t) }
func (t *times) Less(i, j int) bool { return (*t)[i] < (*t)[j] }
func (t *times) Swap(i, j int)      { (*t)[i], (*t)[j] = (*t)[j], (*t)[i] }
func (t *times) Push(x any)         { *t = append(*t, x.(time.Duration)) } //nolint:forcetypeassert // slot pushes nothing else

func (t *times) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}
