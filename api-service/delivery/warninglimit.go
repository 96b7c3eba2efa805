package delivery

import (
	"sync"
	"time"
)

// logEvery is the minimum time between two log lines of a warning that many streams may cause.
const logEvery = time.Minute

// A WarningLimit limits the rate of a warning in the log.
type WarningLimit struct {
	mu   sync.Mutex
	last time.Time
}

// Due reports whether the warning may be logged at now, and counts it as logged.
func (l *WarningLimit) Due(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.last) < logEvery {
		return false
	}
	l.last = now
	return true
}
