package sse

import (
	"context"
	"errors"
	"sync"
)

// ErrBehind is returned by Backlog.Put for a reader that is too far behind.
var ErrBehind = errors.New("sse: the reader is too far behind")

// An Event is one data line that waits for its reader.
type Event struct {
	Data  []byte
	Token bool // it is the first line of an item with tokens
}

// A Backlog holds the data lines of a stream that its reader has not taken yet. Put never waits: past the bound it fails, and the
// reader is given up. One goroutine puts, and another one takes.
type Backlog struct {
	max int // bytes

	mu     sync.Mutex // guards the following fields
	events []Event
	size   int
	ended  bool

	ready chan struct{} // capacity 1: there is something to take, or the backlog has ended
}

// NewBacklog returns a backlog of at most maxBytes.
func NewBacklog(maxBytes int) *Backlog {
	return &Backlog{max: maxBytes, ready: make(chan struct{}, 1)}
}

// Put copies a data line into the backlog, or fails with ErrBehind.
func (b *Backlog) Put(data []byte, token bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size+len(data) > b.max {
		return ErrBehind
	}
	b.size += len(data)
	b.events = append(b.events, Event{Data: append([]byte(nil), data...), Token: token})
	b.wake()
	return nil
}

// End records that no more events will be put.
func (b *Backlog) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.wake()
}

func (b *Backlog) wake() {
	select {
	case b.ready <- struct{}{}:
	default: // due already
	}
}

// Take waits for data lines, and returns all there are. more is false once the stream has put its last line, or ctx is done.
func (b *Backlog) Take(ctx context.Context) (events []Event, more bool) {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return nil, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	events, b.events, b.size = b.events, nil, 0
	return events, !b.ended
}
