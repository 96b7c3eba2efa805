// Package direct joins the two ends of a call in one process by function calls: the callee passes
// the function that runs its engine to the caller, and the caller calls it. An item then passes
// from the engine to the caller's reader without a goroutine switch, a copy or an allocation.
//
// Package rpc's Dial makes a Meeting for each call. A transport within the process (package
// inprocess) carries the Meeting to the callee's context, where package rpc's Serve finds it. Other
// transports do not carry the Meeting, and the call continues as a stream of messages.
package direct

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/whence-dev/whence/pkg/rpc/loop"
)

// A Run runs a callee's engine, and calls pass with each message. It returns true when there are no more
// messages. If resume is not nil, it may return false: then other goroutines call pass, and call resume
// once, which must not block, and has another goroutine call rest. rest returns what a Run returns.
type Run[Out any] func(pass func(*Out), resume func(rest func() (over bool))) (over bool)

// A Meeting joins the two ends of one call. Out is the type of the callee's messages. All methods
// are safe for concurrent use.
type Meeting[Out any] struct {
	carried atomic.Bool
	// run receives the callee's function once, or is closed. It has capacity 1. claim makes it.
	run chan Run[Out]

	mu   sync.Mutex // guards over
	over bool       // the function was given, or will not be given
}

type key struct{}

// Offer returns a context for one call, and the Meeting of that call.
func Offer[Out any](ctx context.Context) (context.Context, *Meeting[Out]) {
	m := &Meeting[Out]{}
	return context.WithValue(ctx, key{}, m), m
}

// A carrier is a Meeting of any type.
type carrier interface {
	claim() bool
	decline()
}

// Carry returns the callee's context with the Meeting of the caller's context, and with the Carrier
// of its stream. The transport calls decline when the callee sends a message itself, and when the
// callee's handler has returned.
func Carry(caller, callee context.Context) (ctx context.Context, decline func()) {
	m, ok := caller.Value(key{}).(carrier)
	if !ok || !m.claim() { // m is the Meeting of a call further up
		return callee, func() {}
	}
	if k := loop.Of(caller); k != nil {
		callee = loop.With(callee, k)
	}
	return context.WithValue(callee, key{}, m), m.decline
}

// Give gives run to the caller in this process. It returns true if the caller will call run, which
// the caller does once.
func Give[Out any](call context.Context, run Run[Out]) bool {
	m, ok := call.Value(key{}).(*Meeting[Out])
	if !ok {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return false
	}
	m.over = true
	m.run <- run
	return true
}

// Await returns the callee's function, which the caller must call. It returns nil if the callee
// sends messages instead, has ended the call, or is in another process, or if ctx is done.
func (m *Meeting[Out]) Await(ctx context.Context) Run[Out] {
	if !m.carried.Load() {
		return nil
	}
	select {
	case run := <-m.run:
		return run
	case <-ctx.Done():
		m.decline()
		return <-m.run
	}
}

func (m *Meeting[Out]) claim() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.carried.Load() {
		return false
	}
	m.run = make(chan Run[Out], 1)
	m.carried.Store(true)
	return true
}

func (m *Meeting[Out]) decline() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.over {
		m.over = true
		close(m.run)
	}
}
