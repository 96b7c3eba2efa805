package mux

import "github.com/whence-dev/whence/internal/prefetch"

// Touched implements prefetch.Toucher: Send touches these objects.
func (s *Stream) Touched() []prefetch.Memory {
	return []prefetch.Memory{prefetch.Of(s), prefetch.Of(s.in)}
}

// Prefetch makes the connection load the objects into the cache when a message arrives.
func (s *Stream) Prefetch(objects prefetch.Set) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.touched = objects
}
