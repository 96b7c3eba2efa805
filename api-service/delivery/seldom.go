package delivery

import (
	"sync"
	"time"
)

// logEvery is the minimum time between two log lines of a warning that many streams may cause.
const logEvery = time.Minute

// Seldom limits the rate of a warning in the log.
type Seldom struct {
	mu   sync.Mutex
	last time.Time
}

// Due reports whether the warning may be logged at now, and counts it as logged.
func (s *Seldom) Due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.last) < logEvery {
		return false
	}
	s.last = now
	return true
}
