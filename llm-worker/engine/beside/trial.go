package beside

import (
	"math/rand/v2"
	"time"
)

const (
	// trialWait is the time from a failed trial to the next one; it doubles with each failure up to
	// maxTrialWait.
	trialWait    = time.Second
	maxTrialWait = 30 * time.Second
	// trialJitter is the random part of the wait, so that the workers of a fleet do not try their
	// servers at the same time.
	trialJitter = 0.25
)

// A Trial makes a server generate one token, to see whether and how it can. Trials cost the server
// work, so the waits between failed trials grow. A zero Trial is due.
type Trial struct {
	failure error // of the last trial; nil if there was none, or it succeeded
	wait    time.Duration
	next    time.Time // no trial before this time
}

// Do calls try, or returns the failure of the last trial while the next one is not due.
func (t *Trial) Do(try func() error) error {
	if t.failure != nil && time.Now().Before(t.next) {
		return t.failure
	}
	err := try()
	if err == nil {
		t.Reset()
		return nil
	}
	t.failure = err
	t.wait = min(max(2*t.wait, trialWait), maxTrialWait)
	t.next = time.Now().Add(t.wait - time.Duration(rand.Float64()*trialJitter*float64(t.wait)))
	return err
}

// Reset makes the next trial due, because the server was away or was replaced.
func (t *Trial) Reset() { *t = Trial{} }
