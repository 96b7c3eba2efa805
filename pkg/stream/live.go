package stream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// The errors of Set.Add and Set.AddOwned.
var (
	ErrDuplicate = errors.New("a live stream has this id")
	ErrFull      = errors.New("too many live streams")
	ErrClosed    = errors.New("no new streams are taken")
)

// A Set holds the live streams of a hop by id, so that they can be found, counted, stopped and
// awaited. The zero value is ready to use and unbounded. All methods are safe for concurrent use.
type Set struct {
	// Max is the maximum number of streams; 0 means no bound. It must not change while the set is
	// in use.
	Max int

	mu      sync.Mutex // guards the following fields
	streams map[string]*entry
	closed  bool
	empty   chan struct{} // closed when the set is closed and empty; nil until Drain waits
}

type entry struct {
	id    string
	ctl   *Control
	owner string
	begun time.Time
}

// Add adds a stream without an owner. The caller must call remove once, when the stream has ended.
func (s *Set) Add(id string, ctl *Control) (remove func(), err error) { return s.AddOwned(id, "", ctl) }

// AddOwned adds a stream of an owner; an empty owner means none. The caller must call remove once,
// when the stream has ended. The error is ErrDuplicate, ErrFull or ErrClosed.
func (s *Set) AddOwned(id, owner string, ctl *Control) (remove func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if _, dup := s.streams[id]; dup {
		return nil, ErrDuplicate
	}
	if s.Max > 0 && len(s.streams) >= s.Max {
		return nil, ErrFull
	}
	if s.streams == nil {
		s.streams = make(map[string]*entry)
	}
	e := &entry{id, ctl, owner, time.Now()}
	s.streams[id] = e
	return func() { s.remove(e) }, nil
}

// Rename gives a live stream another id. It reports false if there is no such stream, or another one has
// the new id.
func (s *Set) Rename(from, to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, live := s.streams[from]
	if _, taken := s.streams[to]; !live || taken {
		return false
	}
	delete(s.streams, from)
	e.id, s.streams[to] = to, e
	return true
}

func (s *Set) remove(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, e.id)
	if s.empty != nil && len(s.streams) == 0 {
		close(s.empty)
		s.empty = nil
	}
}

// Stop stops one stream and returns how long the stream had been running; ok is false if there is
// no such stream. If owners are given, the stream must belong to one of them; otherwise Stop treats
// it as missing.
func (s *Set) Stop(id string, cause error, owners ...string) (age time.Duration, ok bool) {
	return s.StopWithin(id, cause, 0, owners...)
}

// StopWithin is Stop with a shorter grace, such as the budget that the caller sent. If grace is not
// positive, the stream's own grace applies.
func (s *Set) StopWithin(id string, cause error, grace time.Duration, owners ...string) (age time.Duration, ok bool) {
	s.mu.Lock()
	e, ok := s.streams[id]
	s.mu.Unlock()
	if !ok || len(owners) > 0 && !slices.Contains(owners, e.owner) {
		return 0, false
	}
	if grace > 0 {
		e.ctl.StopWithin(cause, grace)
	} else {
		e.ctl.Stop(cause)
	}
	return time.Since(e.begun), true
}

// Has reports whether a live stream has the id.
func (s *Set) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.streams[id]
	return ok
}

// Len returns the number of live streams.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Closed reports whether the set refuses new streams.
func (s *Set) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Room reports whether the set would accept another stream.
func (s *Set) Room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && (s.Max <= 0 || len(s.streams) < s.Max)
}

// Close makes the set refuse new streams.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Drain closes the set and waits until it is empty. It stops idle streams, which wait for their
// callers, with cause at once; a stream that becomes idle later sees that the set is closed. Once
// ctx is done, Drain stops the remaining streams with cause and waits for them, which takes at most
// each stream's grace.
func (s *Set) Drain(ctx context.Context, cause error) {
	s.mu.Lock()
	s.closed = true
	if len(s.streams) == 0 {
		s.mu.Unlock()
		return
	}
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	empty := s.empty
	s.mu.Unlock()
	for _, ctl := range s.controls() {
		ctl.stopIdle(cause)
	}
	select {
	case <-empty:
		return
	case <-ctx.Done():
	}
	for _, ctl := range s.controls() {
		ctl.Stop(cause)
	}
	<-empty
}

// Kill kills all streams with cause. A stream that was stopped before keeps its own cause.
func (s *Set) Kill(cause error) {
	for _, ctl := range s.controls() {
		ctl.Kill(cause)
	}
}

func (s *Set) controls() []*Control {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Control, 0, len(s.streams))
	for _, e := range s.streams {
		all = append(all, e.ctl)
	}
	return all
}
