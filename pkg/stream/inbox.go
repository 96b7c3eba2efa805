package stream

import (
	"context"
	"errors"
	"io"
	"sync"
)

// ErrInboxFull is returned by Put for an item that does not fit.
var ErrInboxFull = errors.New("the inbox is full: too many messages have arrived unread")

// An Inbox is the part of a request that arrives while the request is being answered: with an
// Inbox, an engine's request is a sequence. An Inbox is bounded, and Put never blocks, because the
// goroutine that calls Put must also receive a stop that comes after unread items.
type Inbox[T any] struct {
	// Check is called for each item that Next takes, while the stream is not idle; nil accepts all
	// items. It may wait. Its error replaces the item. It must not change while Next runs.
	Check func(ctx context.Context) error

	// Static.
	maxItems, maxBytes int
	ready              chan struct{} // capacity 1: Next has something to check

	mu     sync.Mutex // guards the following fields
	unread []T
	sizes  []int // of unread
	bytes  int   // their sum
	closed bool
}

// NewInbox returns an inbox that holds at most maxItems unread items and maxBytes bytes.
func NewInbox[T any](maxItems, maxBytes int) *Inbox[T] {
	return &Inbox[T]{maxItems: maxItems, maxBytes: maxBytes, ready: make(chan struct{}, 1)}
}

// Put adds an item of size bytes. It returns ErrInboxFull if the item does not fit.
func (b *Inbox[T]) Put(item T, size int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.unread) >= b.maxItems || b.bytes+size > b.maxBytes {
		return ErrInboxFull
	}
	b.unread, b.sizes, b.bytes = append(b.unread, item), append(b.sizes, size), b.bytes+size
	b.poke()
	return nil
}

// Close ends the sequence of items.
func (b *Inbox[T]) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.poke()
}

func (b *Inbox[T]) poke() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// Next returns the next item, io.EOF after the last item, or the cause of ctx's stream when the
// stream is stopped. While Next waits, the stream is idle (see Control.OnIdle). Only one goroutine
// at a time may call Next.
func (b *Inbox[T]) Next(ctx context.Context) (item T, err error) {
	if cause := Cause(ctx); cause != nil {
		return item, cause
	}
	if item, err = b.take(); errors.Is(err, errNothingYet) {
		item, err = b.await(ctx)
	}
	if cause := Cause(ctx); cause != nil && errors.Is(err, io.EOF) { // the end may have followed the stop
		return item, cause
	}
	if err == nil && b.Check != nil {
		err = b.Check(ctx)
	}
	return item, err
}

// await waits for an item.
func (b *Inbox[T]) await(ctx context.Context) (item T, err error) {
	stopping, ctl := Stopping(ctx), ControlOf(ctx)
	ctl.setIdle(true)
	defer ctl.setIdle(false)
	for err = errNothingYet; errors.Is(err, errNothingYet); {
		select {
		case <-b.ready:
		case <-stopping:
			return item, Cause(ctx)
		}
		item, err = b.take()
	}
	return item, err
}

var errNothingYet = errors.New("nothing has come yet")

func (b *Inbox[T]) take() (item T, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.unread) > 0:
		item = b.unread[0]
		b.bytes -= b.sizes[0]
		clear(b.unread[:1]) // the item belongs to the reader now
		b.unread, b.sizes = b.unread[1:], b.sizes[1:]
		return item, nil
	case b.closed:
		return item, io.EOF
	default:
		return item, errNothingYet
	}
}
