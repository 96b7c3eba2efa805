package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/whence-dev/whence/internal/bigstack"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/rpc/cause"
	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/direct"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/rpc/protocol"
	"github.com/whence-dev/whence/pkg/rpc/wire"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Dial returns the engine behind a bidi method of a peer. open starts a call, such as
// chatv1.NewChatClient(cc).Generate. self and peer are the names of this hop and of the peer's.
//
// When the stream is stopped, Dial sends the peer a Stop with the cause and the path so far, and
// gives the peer the grace to answer. When the reader leaves early, Dial sends a Stop with reason
// COMPLETED: the reader has what it needs. If the stream was stopped, it ends with the cause of the
// stop, whatever the peer reported, so that every hop reports the same cause.
//
// Over a link, Loops carry the messages to the reader, and the stream has no goroutine. Otherwise the
// goroutine that starts the stream receives them.
func Dial[Req, In, Out any](self, peer string, open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[In, Out], error), m *Method[Req, In, Out]) stream.Engine[Req, *Out] {
	return func(ctx context.Context, req Req, to stream.Reader[*Out]) {
		c := &caller[Req, In, Out]{m: m}
		c.entry.Init(ctx, to)
		if !c.begin(ctx, self, peer, protocol.CallerConfig{Mute: m.mute(), Endless: m.endless()}, c.sendStop) {
			to.End(cause.Of(ctx))
			return
		}
		c.run(func() (carried bool) { return c.start(open, req) })
	}
}

// A caller is the caller's end of a call of a bidi method.
type caller[Req, In, Out any] struct {
	call
	m     *Method[Req, In, Out]
	entry stream.Entry[*Out]

	st      grpc.BidiStreamingClient[In, Out] // nil if the call could not be opened; set before the machine gets Opened
	held    *Out                              // the message with the ending
	told    bool                              // the callee was told that the reader has left
	over    bool                              // the machine has finished
	err     error                             // the ending, once over is set
	failure *stream.Failure                   // of the code of this end; nil if there is none

	received  int // tokens reported to the stream's Flow, except those that arrived after the reader had left
	generated int // tokens that engines have generated, as reported by the peer at the end of the call; 0 if unknown
}

// run calls f, and then awaits the end of the call and ends the stream, unless other goroutines carry
// the call from now on.
func (c *caller[Req, In, Out]) run(f func() (carried bool)) {
	carried := false
	defer func() { // also if f exits
		if !carried {
			c.conclude()
		}
	}()
	stream.Guard(func() { carried = f() }, func(failure *stream.Failure) { c.failure = failure })
}

// start opens the call, and receives its messages unless other goroutines carry them.
func (c *caller[Req, In, Out]) start(open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[In, Out], error), req Req) (carried bool) {
	meeting := direct.Meet(c.take, func() { c.run(c.rest) })
	if err := c.open(meeting.With, open, req); err != nil {
		c.closed(err)
		return false
	}
	source := loop.SourceOf(c.st)
	c.swift.Store(source != nil)
	c.step(protocol.Event{Kind: protocol.Opened})
	if meeting.Await(c.callCtx) {
		return true
	}
	if source == nil || stream.Blocks(c.ctx) || c.over {
		return c.rest()
	}
	source.Attend(func() any { return new(Out) }, c.carry, c.attended)
	return true
}

// open opens the call and sends the request. with adds the meeting to the call's context.
func (c *caller[Req, In, Out]) open(with func(context.Context) context.Context, open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[In, Out], error), req Req) error {
	first, err := c.m.request(req)
	if err != nil {
		return err
	}
	ctx := with(prefetch.With(c.callCtx, prefetch.Of(c), prefetch.Of(c.machine)))
	st, err := open(c.canceler.With(ctx))
	if err != nil {
		return err
	}
	c.st = st
	if err = st.Send(first); err == nil {
		return nil
	}
	if err = delivery.Fault(first, err); cause.Classified(err) {
		return err
	}
	if _, why := st.Recv(); why != nil { // the error of Send says only that the call is over
		return why
	}
	return err
}

// rest receives the messages that no other goroutine carries, until the stream is over or the reader
// leaves.
func (c *caller[Req, In, Out]) rest() (carried bool) {
	for !c.over && c.entry.Open() {
		c.receive()
	}
	return false
}

// receive receives a message, or the end of the call.
func (c *caller[Req, In, Out]) receive() {
	out, err := c.st.Recv()
	if err != nil {
		c.closed(err)
		return
	}
	c.pass(nil, out)
}

// carry passes a message to the reader, on the goroutine of a Loop. It reports whether the call
// continues, which it does until its end if the reader leaves.
func (c *caller[Req, In, Out]) carry(on *stream.Loop, m any) (more bool) {
	c.pass(on, m.(*Out)) //nolint:forcetypeassert // made by start
	if !c.entry.Open() {
		c.leave()
	}
	return !c.over
}

// attended ends the stream once Loops carry no more messages of the call. err is the end of the call, if
// they have received it.
func (c *caller[Req, In, Out]) attended(err error) {
	bigstack.Go(func() {
		c.run(func() (carried bool) {
			if err != nil {
				c.closed(err)
			}
			return c.rest()
		})
	})
}

// take passes a message of a callee in this process to the reader. It runs within the callee's engine,
// which is stopped if the reader leaves.
func (c *caller[Req, In, Out]) take(on *stream.Loop, out *Out) { c.carry(on, out) }

// pass passes a message to the machine, and to the reader if the machine decides so.
func (c *caller[Req, In, Out]) pass(on *stream.Loop, out *Out) {
	if c.entry.Open() {
		c.count(out)
	}
	kind := protocol.Item
	if c.m.end(out) != nil {
		kind = protocol.End
	}
	do := c.step(protocol.Event{Kind: kind})
	for _, a := range do.All() {
		switch a.Verb {
		case protocol.Deliver:
			c.entry.Item(on, out)
		case protocol.Hold:
			c.held = out
		case protocol.Finish:
			c.over, c.err = true, a.Err
		default:
		}
	}
}

// count reports a message to the observer.
func (c *caller[Req, In, Out]) count(out *Out) {
	c.events.Answered()
	tokens := c.m.tokens(out)
	c.received += tokens
	c.flow.Received(tokens, out)
}

// closed passes the end of the call, or the error of opening it, to the machine.
func (c *caller[Req, In, Out]) closed(err error) {
	c.readCounts()
	var st grpc.ClientStream
	if c.st != nil {
		st = c.st
	}
	do := c.ended(st, err)
	for _, a := range do.All() {
		switch a.Verb {
		case protocol.DeliverHeld:
			c.entry.Item(nil, c.held)
		case protocol.Finish:
			c.over, c.err = true, a.Err
		default:
		}
	}
}

// leave tells the callee that the reader has left, or that this end has failed.
func (c *caller[Req, In, Out]) leave() {
	if c.over || c.told {
		return
	}
	c.told = true
	if cause.Of(c.ctx) != nil {
		c.stop() // the function of AtStop may not have run yet. A reader that leaves a stopped stream need not have all it needs
	}
	left := protocol.Event{Kind: protocol.Left}
	if c.failure != nil || c.entry.Failure() != nil {
		left.Err = streamerr.New(streamerr.Internal, "the reader panicked")
	}
	c.step(left)
}

// conclude awaits the end of the call, and ends the stream.
func (c *caller[Req, In, Out]) conclude() {
	defer func() { c.entry.End(c.ending()) }()
	defer c.end()
	stream.Guard(c.drain, func(failure *stream.Failure) { c.failure = failure })
}

// ending returns the ending of a stream whose call is over.
func (c *caller[Req, In, Out]) ending() error {
	switch {
	case c.failure != nil:
		return c.failure
	case c.entry.Open():
		return c.err
	default:
		return cause.Of(c.ctx)
	}
}

// drain awaits the end of the call.
func (c *caller[Req, In, Out]) drain() {
	c.leave()
	if c.st == nil { // the call could not be opened
		c.cancel(nil)
		return
	}
	for !c.over {
		c.receive()
	}
	if n := c.generated - c.received; n > 0 {
		c.flow.Note(observer.Event{Kind: observer.Unreceived, Tokens: n})
	}
}

// readCounts reads the numbers of tokens from the trailers of a call that is over.
func (c *caller[Req, In, Out]) readCounts() {
	if c.st == nil {
		return
	}
	trailers := c.st.Trailer()
	c.generated = wire.Generated(trailers)
	c.consumed(trailers)
}

// sendStop sends the Stop and half-closes. It ignores errors, because Recv reports a broken call.
func (c *caller[Req, In, Out]) sendStop(told *streamerr.Error, grace time.Duration) {
	c.events.Resetting(observer.StopSent, told)
	stop := c.m.control(wire.ToStop(told, grace))
	if source := loop.SourceOf(c.st); source != nil {
		_ = source.SendLast(stop)
		return
	}
	_ = c.st.Send(stop)
	_ = c.st.CloseSend()
}
