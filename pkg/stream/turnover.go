package stream

import (
	"math"
	"sync"
	"time"
)

const (
	// soonest and latest bound the result of After: no client retries at once, and no client waits
	// for an hour.
	soonest = time.Second
	latest  = time.Minute
	// recent is the weight of the last interval in the smoothed mean.
	recent = 0.1
)

// A Turnover measures how often places become free, so that refused callers know when to retry. The
// zero value is ready to use, and all methods are safe for concurrent use.
type Turnover struct {
	mu    sync.Mutex // guards the following fields
	last  time.Time  // when a place became free
	every float64    // smoothed seconds between two freed places; 0 while unknown
}

// Freed records that a place has become free.
func (t *Turnover) Freed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.last.IsZero() {
		// An interval without traffic does not show how quickly a queue moves.
		gap := min(now.Sub(t.last), latest).Seconds()
		if t.every == 0 {
			t.every = gap
		} else {
			t.every += recent * (gap - t.every)
		}
	}
	t.last = now
}

// After returns the expected wait for a place with ahead callers in front, in whole seconds from 1
// to 60.
func (t *Turnover) After(ahead int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := math.Ceil(t.every * float64(ahead+1))
	return min(max(time.Duration(wait*float64(time.Second)), soonest), latest)
}
