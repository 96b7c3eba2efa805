package stream

import (
	"math"
	"sync"
	"time"
)

const (
	// soonest and latest bound what Turnover says: nobody comes back within a moment, and nobody believes in an hour.
	soonest = time.Second
	latest  = time.Minute
	// recent is how much of Turnover's mean the last interval is.
	recent = 0.1
)

// A Turnover knows how often places come free, so that those who find none can be told when to try again. The zero value is
// ready, and all methods are safe for concurrent use.
type Turnover struct {
	mu    sync.Mutex // guards the following fields
	last  time.Time  // when a place came free
	every float64    // seconds from one to the next, smoothed; 0 while nobody knows
}

// Freed notes that a place has come free.
func (t *Turnover) Freed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.last.IsZero() {
		// An interval without traffic says nothing of how quickly a queue moves.
		gap := min(now.Sub(t.last), latest).Seconds()
		if t.every == 0 {
			t.every = gap
		} else {
			t.every += recent * (gap - t.every)
		}
	}
	t.last = now
}

// After returns when a place may be had behind so many others, in whole seconds from 1 to 60.
func (t *Turnover) After(ahead int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := math.Ceil(t.every * float64(ahead+1))
	return min(max(time.Duration(wait*float64(time.Second)), soonest), latest)
}
