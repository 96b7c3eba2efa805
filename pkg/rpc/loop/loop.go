// Package loop has the two ends of a call on a connection that Loops read (stream.Loop): the goroutine
// that reads the connection carries each message to the reader of its stream by function calls. A
// message then crosses no goroutine between the connection on which it arrives and the connection on
// which it leaves.
package loop

import (
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/whence-dev/whence/pkg/stream"
)

// A Source is the caller's end of a call on a connection with Loops.
type Source interface {
	// Attend makes Loops call take with each message until take returns false or exits its goroutine.
	// Then they call ended: with nil if take wants no more messages, and otherwise with the end of
	// the call, as RecvMsg returns it. A panic of fresh, of the decoding or of take ends the call
	// with a *streamerr.Error. Attend returns at once, and may call take and ended itself; if take
	// exits that goroutine, ended is not called. fresh makes the messages. ended must not block.
	// RecvMsg returns the messages that take did not get.
	Attend(fresh func() any, take func(on *stream.Loop, m any) bool, ended func(err error))
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

// A Sink is the callee's end of a call on a connection that Loops read.
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
	// Carried sets the Loop that carries the next message, or nil. SendMsg calls on.Wait before it
	// waits, and the messages of a batch share a write. The goroutine that sends calls it.
	Carried(on *stream.Loop)
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
