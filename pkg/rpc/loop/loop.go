// Package loop lets the goroutine that reads a connection of many streams carry each message to the
// reader of its stream by function calls. A message then crosses no goroutine between the
// connection on which it arrives and the connection on which it leaves.
//
// The goroutine is a Loop. Package rpc gives each stream a Carrier, which is the stream's view of
// the Loop that carries it now. The Carrier has two uses. Later writes the bytes for an outgoing
// connection once per batch. Wait is called before code blocks, for example because a client does
// not read: another goroutine then reads the connection, and the blocked goroutine delays only its
// own stream.
package loop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// A Flusher writes the data that it has kept until the end of a batch.
type Flusher interface{ Flush() }

// A Loop is a goroutine that reads a connection. That goroutine calls Run and Flush; the Carriers
// of the streams use the other methods.
type Loop struct {
	handOver func()

	mu     sync.Mutex // guards the following fields
	inside bool       // Run is running
	left   bool       // another goroutine reads the connection
	later  []Flusher
	spare  []Flusher // the list that was flushed last
}

// New returns the Loop of the calling goroutine. handOver is called at most once, within Run. It
// starts a goroutine that continues to read the connection after the current message.
func New(handOver func()) *Loop { return &Loop{handOver: handOver} }

// Run calls f, which passes a message to the reader of a stream. If Run returns false, another
// goroutine reads the connection, and the calling goroutine must stop reading.
func (l *Loop) Run(c *Carrier, f func()) (still bool) {
	l.mu.Lock()
	l.inside = true
	l.mu.Unlock()
	c.loop.Store(l)
	returned := false
	defer func() {
		c.loop.CompareAndSwap(l, nil) // another Loop may carry the stream by now
		if !returned {                // the reader has exited the goroutine
			l.leave()
		}
		l.mu.Lock()
		l.inside = false
		still = !l.left
		l.mu.Unlock()
	}()
	f()
	returned = true
	return false
}

// Flush ends a batch: it writes the data kept by Later.
func (l *Loop) Flush() {
	l.mu.Lock()
	due := l.later
	l.later, l.spare = l.spare[:0], nil
	l.mu.Unlock()
	flush(due)
	l.mu.Lock()
	l.spare = due
	l.mu.Unlock()
}

func flush(due []Flusher) {
	for i, f := range due {
		f.Flush()
		due[i] = nil
	}
}

// leave makes another goroutine read the connection.
func (l *Loop) leave() {
	l.mu.Lock()
	if l.left || !l.inside {
		l.mu.Unlock()
		return
	}
	l.left = true
	due := l.later
	l.later = nil
	l.handOver()
	l.mu.Unlock()
	flush(due)
}

// A Carrier belongs to one stream. All methods are safe for concurrent use. A nil Carrier is valid;
// no Loop carries its stream.
type Carrier struct{ loop atomic.Pointer[Loop] }

type key struct{}

// With returns a context whose stream a Loop may carry by means of c.
func With(ctx context.Context, c *Carrier) context.Context { return context.WithValue(ctx, key{}, c) }

// Of returns the Carrier of the stream of ctx, or nil.
func Of(ctx context.Context) *Carrier {
	c, _ := ctx.Value(key{}).(*Carrier)
	return c
}

// Wait must be called before the caller waits for longer than it takes to process a message.
func (c *Carrier) Wait() {
	if c == nil {
		return
	}
	if l := c.loop.Load(); l != nil {
		l.leave()
	}
}

// Later makes the Loop flush f at the end of the batch. It returns false if there is no batch; then
// the caller must flush f.
func (c *Carrier) Later(f Flusher) bool {
	if c == nil {
		return false
	}
	l := c.loop.Load()
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.inside || l.left {
		return false
	}
	l.later = append(l.later, f)
	return true
}

// Lend makes the Loop that carries c carry the stream of other, too, until other.Return is called
// with the result. A stream with several concurrent calls has a Carrier for each of them, so that a
// message of one call does not affect the Loop of another call.
func (c *Carrier) Lend(other *Carrier) *Loop {
	if c == nil || other == nil {
		return nil
	}
	l := c.loop.Load()
	if l != nil {
		other.loop.Store(l)
	}
	return l
}

// Return ends a Lend, unless another Loop has been lent since.
func (c *Carrier) Return(l *Loop) {
	if c != nil && l != nil {
		c.loop.CompareAndSwap(l, nil)
	}
}

// A Source is the caller's end of a call on a connection with Loops.
type Source interface {
	// Attend makes Loops call take with each message, with c, until take returns false or exits its
	// goroutine. Then they call ended: with nil if take wants no more messages, and otherwise with
	// the end of the call, as RecvMsg returns it. If take exits its goroutine, ended is not called.
	// A panic of fresh, of the decoding or of take ends the call with a *streamerr.Error. Attend
	// returns at once, and may call take and ended itself. fresh makes the messages. ended must not
	// block. RecvMsg returns the messages that take did not get.
	Attend(c *Carrier, fresh func() any, take func(m any) bool, ended func(err error))
	// SendLast sends a short last message without waiting for credit, and half-closes. A message
	// above 16 KiB may block.
	SendLast(m any) error
}

// SourceOf returns the Source of a call, or nil if its connection has none.
func SourceOf[In, Out any](st grpc.BidiStreamingClient[In, Out]) Source {
	if src, ok := st.(Source); ok {
		return src
	}
	if generic, ok := st.(*grpc.GenericClientStream[In, Out]); ok {
		src, _ := generic.ClientStream.(Source)
		return src
	}
	return nil
}

// ErrLeft is returned by a handler while other goroutines carry its call. The Finish of the call's
// Sink ends the call. The connection counts the handler as running until Release.
var ErrLeft = errors.New("loop: the handler has left its call to Loops")

// A Sink is the callee's end of a call on a connection that calls Wait of the stream's Carrier
// before it waits for the peer.
type Sink interface {
	// Finish ends the call with the error and the trailers of its handler, which may return later.
	// A blocked SendMsg returns. Only the first Finish has an effect.
	Finish(err error, trailer metadata.MD)
	// Release reports that the stream is over whose handler has returned ErrLeft, or is about to
	// return it. Finish must be called before Release.
	Release()
	// OnFinish makes Finish call f before it ends the call. If Finish was called before, OnFinish
	// calls f at once. Middleware that counts open calls uses it, because the caller may open its
	// next call as soon as it receives the end of this call.
	OnFinish(f func())
	// AfterOver calls f on a goroutine of its own once the call is over or its deadline has passed, as
	// context.AfterFunc does with the call's context, but uses less memory. It is called at most once.
	AfterOver(f func()) (undo func() bool)
	// Carried sets the Carrier of the goroutine that sends. It is called before the first message.
	Carried(c *Carrier)
	// Attend makes the connection call take with each further message, or with the error of a
	// message that cannot be read, until take returns false. Then it calls ended, with the end of
	// the call if the call has ended. A panic of fresh, of the decoding or of take ends the call
	// with a *streamerr.Error. Attend returns at once. fresh makes the messages. take and ended
	// must not block.
	Attend(fresh func() any, take func(m any, err error) bool, ended func(err error))
}

// SinkOf returns the Sink of a call, or nil if its connection has none.
func SinkOf[In, Out any](st grpc.BidiStreamingServer[In, Out]) Sink {
	if generic, ok := st.(*grpc.GenericServerStream[In, Out]); ok {
		return SinkOfStream(generic.ServerStream)
	}
	return nil
}

// SinkOfStream returns the Sink of a call without message types, or nil if its connection has none.
// It looks behind middleware that has a method Unwrap.
func SinkOfStream(st grpc.ServerStream) Sink {
	for {
		if sink, ok := st.(Sink); ok {
			return sink
		}
		wrapper, ok := st.(interface{ Unwrap() grpc.ServerStream })
		if !ok {
			return nil
		}
		st = wrapper.Unwrap()
	}
}
