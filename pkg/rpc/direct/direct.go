// Package direct joins the two ends of a call in one process by function calls: an item passes from
// the callee's engine to the caller's reader without a goroutine switch, a copy or an allocation.
//
// Package rpc's Dial makes a Meeting for each call. A transport within the process (package
// inprocess) carries the Meeting to the callee's context, where package rpc's Serve takes it. Other
// transports do not carry the Meeting, and the call continues as a stream of messages.
package direct

import (
	"context"
	"sync"

	"github.com/whence-dev/whence/pkg/stream"
)

// A Meeting joins the two ends of one call. Out is the type of the callee's messages. All methods
// are safe for concurrent use.
type Meeting[Out any] struct {
	take func(on *stream.Loop, out *Out)
	over func()

	mu      sync.Mutex // guards the following fields
	state   state
	awaited chan struct{} // closed when the caller is ready for messages; nil before claimed
	decided chan struct{} // closed when the state is taken or declined; nil before claimed
}

type state uint8

const (
	offered  state = iota
	claimed        // a transport carries the Meeting
	taken          // the callee passes its messages to take
	declined       // the callee sends its messages
)

type key struct{}

// Meet returns the Meeting of one call. The callee calls take with each message, one at a time. over is
// called when the callee has passed its last message, on a goroutine that may block.
func Meet[Out any](take func(on *stream.Loop, out *Out), over func()) *Meeting[Out] {
	return &Meeting[Out]{take: take, over: over}
}

// With returns the context of the Meeting's call.
func (m *Meeting[Out]) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, m)
}

// A carrier is a Meeting of any type.
type carrier interface {
	claim() bool
	decline() bool
	returned()
}

// A Joint is the Meeting of a call for the transport that carries the call. The zero value is that of
// a call without a Meeting.
type Joint struct{ carrier }

// Carry returns the callee's context with the Meeting of the caller's context.
func Carry(caller, callee context.Context) (context.Context, Joint) {
	if stream.Blocks(caller) {
		callee = stream.WithBlocking(callee)
	}
	m, ok := caller.Value(key{}).(carrier)
	if !ok || !m.claim() { // m is the Meeting of a call further up
		return callee, Joint{}
	}
	return context.WithValue(callee, key{}, m), Joint{m}
}

// Sends notes that the callee sends a message itself.
func (c Joint) Sends() {
	if c.carrier != nil {
		c.decline()
	}
}

// Over notes that the callee's handler has returned and that the call has its status. It may block until
// the caller's stream has ended.
func (c Joint) Over() {
	if c.carrier != nil {
		c.returned()
	}
}

// Take takes the call of a caller in this process, once the caller is ready for messages. ok is false if
// the caller is in another process; then the callee sends its messages.
func Take[Out any](call context.Context) (take func(on *stream.Loop, out *Out), ok bool) {
	m, ok := call.Value(key{}).(*Meeting[Out])
	if !ok {
		return nil, false
	}
	select {
	case <-m.awaited:
	case <-call.Done():
		m.decline()
	}
	return m.take, m.decide(taken)
}

// Await reports whether the callee has taken the call. It returns false if the callee sends messages
// instead, has ended the call, or is in another process, or if ctx is done.
func (m *Meeting[Out]) Await(ctx context.Context) (isTaken bool) {
	m.mu.Lock()
	decided := m.decided
	if decided != nil {
		close(m.awaited)
	}
	m.mu.Unlock()
	if decided == nil {
		return false
	}
	select {
	case <-decided:
	case <-ctx.Done():
		m.decline()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state == taken
}

func (m *Meeting[Out]) claim() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state != offered {
		return false
	}
	m.state, m.awaited, m.decided = claimed, make(chan struct{}), make(chan struct{})
	return true
}

// decide brings a claimed Meeting into its final state, once.
func (m *Meeting[Out]) decide(to state) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state != claimed {
		return false
	}
	m.state = to
	close(m.decided)
	return true
}

func (m *Meeting[Out]) decline() bool { return m.decide(declined) }

// returned tells the caller that there are no more messages, if the callee has taken the call.
func (m *Meeting[Out]) returned() {
	if m.decline() {
		return
	}
	m.mu.Lock()
	over := m.state == taken
	m.mu.Unlock()
	if over {
		m.over()
	}
}
