// Package loop lets the goroutine that reads a connection of many streams carry each message to the
// reader of its stream by function calls. A message then crosses no goroutine between the connection
// that it comes from and the connection that it leaves by.
//
// The goroutine is a Loop. Package rpc gives each stream a Carrier, the stream's view of the Loop that
// carries it at the moment. The Carrier has two uses. Bytes for an outgoing connection are written
// once per batch: Later. And code that is about to wait, for a client that does not read, calls Wait
// first: the connection then gets another goroutine, and the waiting goroutine delays no stream but its
// own.
package loop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// A Flusher writes what waits for the end of a batch.
type Flusher interface{ Flush() }

// A Loop is a goroutine that reads a connection. Run and Flush are for that goroutine; the Carriers
// of the streams use the other methods.
type Loop struct {
	handOver func()

	mu     sync.Mutex // guards the following fields
	inside bool       // Run is running
	left   bool       // another goroutine reads the connection
	later  []Flusher
	spare  []Flusher // the list that was flushed last
}

// New returns the Loop of the calling goroutine. handOver is called at most once, within Run: it starts
// a goroutine that continues to read the connection behind the message in hand.
func New(handOver func()) *Loop { return &Loop{handOver: handOver} }

// Run calls f, which hands a message to the reader of a stream. If Run returns false, another
// goroutine reads the connection, and this one must not.
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

// Flush ends a batch: what waits for its end is written.
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

// leave has another goroutine read the connection.
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

// A Carrier belongs to one stream. All methods are safe for concurrent use. A nil Carrier is valid:
// no Loop carries its stream.
type Carrier struct{ loop atomic.Pointer[Loop] }

type key struct{}

// With returns a context whose stream a Loop may carry with c.
func With(ctx context.Context, c *Carrier) context.Context { return context.WithValue(ctx, key{}, c) }

// Of returns the Carrier of the stream of ctx, or nil.
func Of(ctx context.Context) *Carrier {
	c, _ := ctx.Value(key{}).(*Carrier)
	return c
}

// Wait is called before the caller waits for something that may take longer than a message.
func (c *Carrier) Wait() {
	if c == nil {
		return
	}
	if l := c.loop.Load(); l != nil {
		l.leave()
	}
}

// Later has f flushed at the end of the batch. It returns false if there is no batch; then the caller
// flushes f.
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

// Lend has the Loop that carries c carry the stream of other as well, until other.Return is called with
// the result. A stream that has several calls at a time has a Carrier for each of them: then a message
// of one call does not change what another call sees.
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

// Return ends a Lend, unless another Loop was lent since.
func (c *Carrier) Return(l *Loop) {
	if c != nil && l != nil {
		c.loop.CompareAndSwap(l, nil)
	}
}

// A Source is the caller's end of a call on a connection with Loops.
type Source interface {
	// Attend has Loops call take with each message, with c, until take returns false or exits its
	// goroutine, and then ended: with nil if take wants no more, and otherwise with the end of the call,
	// as RecvMsg returns it. A panic of fresh, of the decoding or of take ends the call with a
	// *streamerr.Error. Attend returns at once, and may call take and ended itself; if take exits the
	// goroutine of that call, ended is not called. fresh makes the messages. ended must not wait. What
	// take has left is for RecvMsg.
	Attend(c *Carrier, fresh func() any, take func(m any) bool, ended func(err error))
	// SendNow sends a short last message, without waiting for credit. A message above 16 KiB may wait.
	SendNow(m any) error
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

// ErrLeft is what a handler returns while other goroutines carry its call, which ends by Finish of its
// Sink. The connection keeps the handler among those that run until Release.
var ErrLeft = errors.New("loop: the handler has left its call to Loops")

// A Sink is the callee's end of a call on a connection that asks the stream's Carrier before it waits
// for the peer.
type Sink interface {
	// Finish ends the call with the error and the trailers of its handler, which may return later. A
	// SendMsg that waits returns. Only the first Finish counts.
	Finish(err error, trailer metadata.MD)
	// Release reports that the stream of a handler that has returned ErrLeft, or is about to, is over.
	// Finish comes first.
	Release()
	// OnFinish has f called before Finish ends the call, at once if that was before. Middleware that
	// counts open calls uses it: the caller may open its next call as soon as it has heard the end of
	// this one.
	OnFinish(f func())
	// Carried names the Carrier of the goroutine that sends. It is called before the first message.
	Carried(c *Carrier)
	// Attend has take called with each further message, or with the error of one that cannot be
	// read, until take returns false, and then ended, with the end of the call if it has ended. A panic
	// of fresh, of the decoding or of take is such an end, as a *streamerr.Error. Attend returns at
	// once. fresh makes the messages. take and ended must not wait.
	Attend(fresh func() any, take func(m any, err error) bool, ended func(err error))
}

// SinkOf returns the Sink of a call, or nil if its connection has none.
func SinkOf[In, Out any](st grpc.BidiStreamingServer[In, Out]) Sink {
	if generic, ok := st.(*grpc.GenericServerStream[In, Out]); ok {
		return SinkOfStream(generic.ServerStream)
	}
	return nil
}

// SinkOfStream returns the Sink of a call that has no types yet, or nil if its connection has none. It
// looks behind middleware that has a method Unwrap.
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
