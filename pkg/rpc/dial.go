package rpc

import (
	"context"
	"runtime"
	"time"

	"google.golang.org/grpc"

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
// gives the peer the grace to answer. When the caller leaves the loop early, Dial sends a Stop with
// reason COMPLETED: the caller has what it needs. If the stream was stopped, the last error is the
// cause of the stop, whatever the peer reported, so that every hop reports the same cause.
func Dial[Req, In, Out any](self, peer string, open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[In, Out], error), m *Method[Req, In, Out]) stream.Sequence[Req, *Out] {
	return DialStarter(self, peer, open, m).Sequence()
}

// DialStarter is Dial for readers that keep no goroutine while a Loop carries the call. That
// happens over links, for a stream with a Carrier (package loop).
func DialStarter[Req, In, Out any](self, peer string, open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[In, Out], error), m *Method[Req, In, Out]) stream.Starter[Req, *Out] {
	return func(ctx context.Context, req Req, yield func(*Out, error) bool, resume func(rest func() bool)) (over bool) {
		c := &caller[Req, In, Out]{m: m, yield: yield}
		if !c.begin(ctx, self, peer, protocol.CallerConfig{Mute: m.mute(), Endless: m.endless()}, c.sendStop) {
			yield(nil, cause.Of(ctx))
			return true
		}
		return c.run(func() bool { return c.receive(func() error { return c.open(open, req) }, resume) })
	}
}

// A caller is the caller's end of a call of a bidi method.
type caller[Req, In, Out any] struct {
	call
	m     *Method[Req, In, Out]
	yield func(*Out, error) bool

	st       grpc.BidiStreamingClient[In, Out] // nil if the call could not be opened; set before the machine gets Opened
	meeting  *direct.Meeting[Out]              // with a callee in this process; set with st
	held     *Out                              // the message with the ending
	gone     bool                              // the reader has left the loop
	panicked bool                              // the reader has left because it panicked
	over     bool                              // the machine has finished
	thrown   any                               // the value of the reader's panic on another goroutine
	exited   bool                              // the reader has exited another goroutine

	received  int // tokens reported to the stream's Flow, except those that arrived after the reader had left
	generated int // tokens that engines have generated, as reported by the peer at the end of the call; 0 if unknown
}

// open opens the call and sends the request.
func (c *caller[Req, In, Out]) open(open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[In, Out], error), req Req) error {
	first, err := c.m.request(req)
	if err != nil {
		return err
	}
	ctx, meeting := direct.Offer[Out](prefetch.With(c.callCtx, prefetch.Of(c), prefetch.Of(c.machine), prefetch.Func(c.yield)))
	st, err := open(c.canceler.With(ctx))
	if err != nil {
		return err
	}
	c.st, c.meeting = st, meeting
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

// run calls f, and then awaits the end of the call, unless Loops carry the call from now on.
func (c *caller[Req, In, Out]) run(f func() (carried bool)) (over bool) {
	carried := false
	defer func() {
		if carried {
			return
		}
		defer c.end()
		c.drain()
	}()
	carried = f()
	return !carried
}

// receive passes the messages of the call to the reader, until the stream is over or the reader
// leaves. It returns true if Loops pass the messages from now on.
func (c *caller[Req, In, Out]) receive(open func() error, resume func(rest func() bool)) (carried bool) {
	if err := open(); err != nil {
		c.closed(err)
		return false
	}
	c.swift.Store(loop.SourceOf(c.st) != nil)
	c.step(protocol.Event{Kind: protocol.Opened})
	if run := c.meeting.Await(c.callCtx); run != nil {
		return c.join(func(resume func(func() bool)) bool { return run(c.take, resume) }, resume)
	}
	return c.attend(resume)
}

// join calls part, which passes messages of a callee in this process to take, and then goes on with
// other messages. It returns true if other goroutines pass the messages from now on.
func (c *caller[Req, In, Out]) join(part func(resume func(rest func() bool)) (over bool), resume func(func() bool)) (carried bool) {
	var later func(rest func() bool)
	if resume != nil {
		later = func(rest func() bool) {
			resume(func() bool {
				return c.run(func() bool { return c.join(func(func(func() bool)) bool { return rest() }, resume) })
			})
		}
	}
	if !part(later) {
		return true
	}
	c.repeat()
	return c.attend(resume)
}

// attend makes Loops pass the messages to the reader, or else passes them itself.
func (c *caller[Req, In, Out]) attend(resume func(rest func() bool)) (carried bool) {
	if k, src := loop.Of(c.ctx), loop.SourceOf(c.st); k != nil && src != nil && !c.over && !c.gone {
		src.Attend(k, func() any { return new(Out) }, c.carried, func(err error) {
			resume(func() bool { return c.run(func() bool { return c.rest(err) }) })
		})
		return true
	}
	return c.rest(nil)
}

// rest passes the remaining messages, which no Loop carries, to the reader. err is the end of the
// call if the call is already over.
func (c *caller[Req, In, Out]) rest(err error) (carried bool) {
	c.repeat()
	for err == nil && !c.over && !c.gone {
		var out *Out
		if out, err = c.st.Recv(); err == nil {
			c.count(out)
			c.pass(out)
		}
	}
	if err != nil {
		c.closed(err)
	}
	return false
}

// carried passes a message to the reader, on the goroutine of a Loop. It reports whether the reader
// wants more messages. The work after the last message is not done on that goroutine.
func (c *caller[Req, In, Out]) carried(m any) (more bool) {
	c.exited = true // stays true if the reader neither returns nor panics
	defer func() {
		if v := recover(); v != nil {
			c.thrown, c.exited, more = v, false, false
		}
	}()
	out := m.(*Out) //nolint:forcetypeassert // made by receive
	c.count(out)
	c.pass(out)
	c.exited = false
	return !c.over && !c.gone
}

// repeat repeats, on this goroutine, a panic or an exit of the reader on another goroutine.
func (c *caller[Req, In, Out]) repeat() {
	switch {
	case c.thrown != nil:
		panic(c.thrown)
	case c.exited:
		runtime.Goexit()
	}
}

// take passes a message of a callee in this process to the reader. take runs within the callee's
// engine. Therefore it keeps a panic of the reader until the engine has ended, and tells the callee
// itself that the reader has left.
func (c *caller[Req, In, Out]) take(out *Out) {
	defer func() {
		if v := recover(); v != nil {
			c.thrown = v
		}
		if c.gone {
			c.leave()
		}
	}()
	if !c.gone {
		c.count(out)
	}
	c.pass(out)
}

// count reports a message to the observer.
func (c *caller[Req, In, Out]) count(out *Out) {
	c.events.Answered()
	tokens := c.m.tokens(out)
	c.received += tokens
	c.flow.Received(tokens, out)
}

// pass passes a message to the machine, and to the reader if the machine decides so.
func (c *caller[Req, In, Out]) pass(out *Out) {
	kind := protocol.Item
	if c.m.end(out) != nil {
		kind = protocol.End
	}
	do := c.step(protocol.Event{Kind: kind})
	for _, a := range do.All() {
		switch a.Verb {
		case protocol.Deliver:
			c.deliver(out, nil)
		case protocol.Hold:
			c.held = out
		case protocol.Finish:
			c.finish(a.Err)
		default:
		}
	}
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
			c.deliver(c.held, nil)
		case protocol.Finish:
			c.finish(a.Err)
		default:
		}
	}
}

// deliver passes a pair to the reader, unless the reader has left.
func (c *caller[Req, In, Out]) deliver(out *Out, err error) {
	if c.gone {
		return
	}
	c.gone, c.panicked = true, true // holds if yield panics
	c.gone, c.panicked = !c.yield(out, err), false
}

func (c *caller[Req, In, Out]) finish(err error) {
	c.over = true
	if err != nil {
		c.deliver(nil, err)
	}
}

// leave tells the callee that the reader has left.
func (c *caller[Req, In, Out]) leave() {
	if c.over {
		return
	}
	if cause.Of(c.ctx) != nil {
		c.stop() // the function of AtStop may not have run yet. A reader that leaves a stopped stream need not have all it needs
	}
	left := protocol.Event{Kind: protocol.Left}
	if c.panicked || !c.gone { // if the reader has not left, the receiving code has panicked
		left.Err = streamerr.New(streamerr.Internal, "the reader panicked")
	}
	c.step(left)
}

// drain awaits the end of the call. The reader may have left.
func (c *caller[Req, In, Out]) drain() {
	c.leave()
	if c.st == nil { // a panic before the call was open
		c.cancel(nil)
		return
	}
	for !c.over {
		if out, err := c.st.Recv(); err != nil {
			c.closed(err)
		} else {
			c.pass(out)
		}
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
	if src := loop.SourceOf(c.st); src != nil {
		_ = src.SendLast(stop)
		return
	}
	_ = c.st.Send(stop)
	_ = c.st.CloseSend()
}
