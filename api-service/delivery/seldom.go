package delivery

import (
	"sync"
	"time"
)

// logEvery is how often a warning is logged that many streams may bring about.
const logEvery = time.Minute

// Seldom limits how often a warning is logged.
type Seldom struct {
	mu   sync.Mutex
	last time.Time
}

// Due reports whether the warning may be logged at now, and takes that for done.
func (s *Seldom) Due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.last) < logEvery {
		return false
	}
	s.last = now
	return true
}
