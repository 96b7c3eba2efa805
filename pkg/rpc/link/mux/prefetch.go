package mux

import "github.com/whence-dev/whence/internal/prefetch"

// Touched implements prefetch.Toucher: Send touches these objects.
func (s *Stream) Touched(to *prefetch.List) { to.Add(prefetch.Before(s, &s.in)) }

// load starts to load the objects of Attend.
func (s *Stream) load() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.touched.Load()
}
