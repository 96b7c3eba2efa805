package rpc

import (
	"context"
	"iter"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/direct"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/rpc/protocol"
	"github.com/whence-dev/whence/pkg/rpc/report"
	"github.com/whence-dev/whence/pkg/rpc/step"
	"github.com/whence-dev/whence/pkg/rpc/wire"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Dial returns the engine behind a bidi method of a peer. open starts a call, such as chatv1.NewChatClient(cc).Generate.
// self and peer are hop names.
//
// When the stream is stopped, the peer is sent a Stop with the cause and the path so far, then has the grace to answer; a
// caller that leaves the loop early does the same with reason COMPLETED: it has what it needs. The last error is the
// cause of the stop where there was one, whatever the peer made of it, so that every hop tells the same story.
func Dial[Req, In, Out any](self, peer string, open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[In, Out], error), m *Method[Req, In, Out]) stream.Engine[Req, *Out] {
	return func(ctx context.Context, req Req) iter.Seq2[*Out, error] {
		return func(yield func(*Out, error) bool) {
			c := &caller[Req, In, Out]{m: m, yield: yield}
			if !c.begin(ctx, self, peer, protocol.CallerConfig{Mute: m.mute(), Endless: m.endless()}, c.sendStop) {
				yield(nil, cause(ctx))
				return
			}
			defer c.end()
			defer c.drain()
			c.receive(func() error { return c.open(open, req) })
		}
	}
}

// A caller is the caller's end of a call of a bidi method.
type caller[Req, In, Out any] struct {
	call
	m     *Method[Req, In, Out]
	yield func(*Out, error) bool

	st       grpc.BidiStreamingClient[In, Out] // nil if the call could not be opened; set before the machine hears of it
	meeting  *direct.Meeting[Out]              // with a callee in this process; set with st
	held     *Out                              // the message with the ending
	gone     bool                              // the reader has left the loop
	panicked bool                              // so the reader left
	over     bool                              // the machine has finished
	thrown   any                               // what the reader panicked with on another goroutine

	received  int // tokens that the stream's Flow was told; tokens that came after the reader left are not counted
	generated int // tokens that the peer says engines have generated, once the call is over; 0 if it does not say
}

// open opens the call and sends the request.
func (c *caller[Req, In, Out]) open(open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[In, Out], error), req Req) error {
	first, err := c.m.request(req)
	if err != nil {
		return err
	}
	ctx, meeting := direct.Offer[Out](c.callCtx)
	st, err := open(ctx)
	if err != nil {
		return err
	}
	c.st, c.meeting = st, meeting
	if err = st.Send(first); err == nil {
		return nil
	}
	if err = delivery.Fault(first, err); classified(err) {
		return err
	}
	if _, why := st.Recv(); why != nil { // Send only says that the call is over
		return why
	}
	return err
}

// receive passes the messages of the call to the reader, until the stream is over or the reader leaves.
func (c *caller[Req, In, Out]) receive(open func() error) {
	if err := open(); err != nil {
		c.closed(err)
		return
	}
	c.step(protocol.Event{Kind: protocol.Opened})
	if run := c.meeting.Await(c.callCtx); run != nil {
		run(c.take)
		c.repeat()
	}
	if k, src := loop.Of(c.ctx), loop.SourceOf(c.st); k != nil && src != nil && !c.over && !c.gone {
		if err := src.Carry(k, func() any { return new(Out) }, c.carried); err != nil {
			c.closed(err)
			return
		}
		c.repeat()
	}
	for !c.over && !c.gone {
		out, err := c.st.Recv()
		if err != nil {
			c.closed(err)
			return
		}
		c.count(out)
		c.pass(out)
	}
}

// carried passes a message to the reader, on the goroutine of a Loop. It reports whether the reader wants more: what follows its
// last message is not for that goroutine.
func (c *caller[Req, In, Out]) carried(m any) (more bool) {
	defer func() {
		if v := recover(); v != nil {
			c.thrown, more = v, false
		}
	}()
	out := m.(*Out) //nolint:forcetypeassert // made by receive
	c.count(out)
	c.pass(out)
	return !c.over && !c.gone
}

// repeat repeats a panic of the reader that happened on another goroutine.
func (c *caller[Req, In, Out]) repeat() {
	if c.thrown != nil {
		panic(c.thrown)
	}
}

// take passes a message of a callee in this process to the reader. It runs within the callee's engine: so it keeps a panic of the
// reader until the engine has ended, and tells the callee itself that the reader has left.
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

// count records a message for the observer.
func (c *caller[Req, In, Out]) count(out *Out) {
	c.events.Answered()
	tokens := c.m.tokens(out)
	c.received += tokens
	c.flow.Received(tokens, out)
}

// pass gives a message to the machine, and to the reader if the machine says so.
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

// closed gives the end of the call, or of the attempt to open it, to the machine.
func (c *caller[Req, In, Out]) closed(err error) {
	c.generatedSaid()
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

// deliver passes a pair to the reader, unless it has left.
func (c *caller[Req, In, Out]) deliver(out *Out, err error) {
	if c.gone {
		return
	}
	c.gone, c.panicked = true, true // if yield panics
	c.gone, c.panicked = !c.yield(out, err), false
}

func (c *caller[Req, In, Out]) finish(err error) {
	c.over = true
	if err != nil {
		c.deliver(nil, err)
	}
}

// leave tells the callee of a reader that left.
func (c *caller[Req, In, Out]) leave() {
	if c.over {
		return
	}
	if cause(c.ctx) != nil {
		c.stop() // which may be on its way: a reader that leaves a stopped stream does not leave because it has what it needs
	}
	left := protocol.Event{Kind: protocol.Left}
	if c.panicked {
		left.Err = streamerr.New(streamerr.Internal, "the reader panicked")
	}
	c.step(left)
}

// drain awaits the end of the call, whose reader may have left.
func (c *caller[Req, In, Out]) drain() {
	c.leave()
	if c.st == nil { // a panic before the call was open
		c.cut(nil)
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

// generatedSaid reads generatedTrailer of a call that is over.
func (c *caller[Req, In, Out]) generatedSaid() {
	if c.st == nil {
		return
	}
	c.generated = wire.Generated(c.st)
}

// sendStop sends the Stop and half-closes. A broken call is noticed by Recv.
func (c *caller[Req, In, Out]) sendStop(told *streamerr.Error, grace time.Duration) {
	c.events.Resetting(observer.StopSent, told)
	stop := c.m.control(wire.ToStop(told, grace))
	if src := loop.SourceOf(c.st); src != nil {
		_ = src.SendNow(stop)
	} else {
		_ = c.st.Send(stop)
	}
	_ = c.st.CloseSend()
}

// A call is the part of a caller's end of a call that does not depend on the method's kind and messages.
type call struct {
	self, peer string
	ctx        context.Context //nolint:containedctx // the stream's
	callCtx    context.Context //nolint:containedctx // detached: were the call to end with ctx, its reset would overtake the Stop that says why
	cut        context.CancelCauseFunc
	flow       observer.Flow
	events     report.Call
	begun      time.Time
	sendStop   func(told *streamerr.Error, grace time.Duration)
	undo       func() bool
	told       chan struct{} // closed when the stop from above was handled

	left bool // the callee was left; owned by the step that leaves

	mu      sync.Mutex // guards the following fields
	machine *protocol.Caller
	timer   *time.Timer // nil until the machine wants a Tick
}

// begin reports false if the stream was stopped before the call. Otherwise the caller calls end.
func (c *call) begin(ctx context.Context, self, peer string, config protocol.CallerConfig, sendStop func(*streamerr.Error, time.Duration)) bool {
	if cause(ctx) != nil {
		return false
	}
	stream.NoteCallee(ctx, peer)
	config.Self, config.Peer, config.Grace = self, peer, DefaultGrace
	c.self, c.peer, c.ctx, c.sendStop = self, peer, ctx, sendStop
	c.callCtx, c.cut = context.WithCancelCause(wire.Outgoing(context.WithoutCancel(ctx), self))
	c.flow, c.begun = observer.Of(ctx), time.Now()
	c.events.Flow, c.events.Peer = c.flow, peer
	c.machine, c.told = protocol.NewCaller(config), make(chan struct{})
	c.events.Opening(wire.Via(ctx).Append(self))
	c.step(protocol.Event{Kind: protocol.Open})
	c.undo = stream.AfterStop(ctx, func(error) {
		defer close(c.told)
		c.stop()
	})
	return true
}

// stop tells the machine that ctx's stream is to stop. If the hop's own Control is still live, only this call is stopped: the
// stream continues on another worker. Otherwise the call has no more time than the hop.
func (c *call) stop() {
	grace, part := stream.ControlOf(c.ctx).Grace(), false
	if root, ok := c.ctx.Value(rootKey{}).(*stream.Control); ok {
		if part = root.State() == stream.Live; !part {
			grace = min(grace, root.Grace())
		}
	}
	c.step(protocol.Event{Kind: protocol.Stop, Err: cause(c.ctx), Grace: grace, Part: part})
}

// end frees what the call holds. It is over by then.
func (c *call) end() {
	if !c.undo() {
		<-c.told
	}
	c.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	if !c.left {
		c.flow.Note(observer.Event{Kind: observer.CallOver})
	}
	c.cut(nil)
}

// ended tells the machine that the call is over, with err as Recv has it.
func (c *call) ended(st grpc.ClientStream, err error) step.Actions {
	if cause(c.ctx) != nil {
		c.stop() // which may be on its way
	}
	over := protocol.Event{Kind: protocol.Over, Own: wire.OwnEnding(st, err)}
	if e := streamerr.FromGRPC(c.peer, err); e != nil {
		over.Err = e
	}
	c.events.Over(st, err)
	return c.step(over)
}

// step gives an event to the machine, and executes the actions that are not the reader's.
func (c *call) step(e protocol.Event) (a step.Actions) {
	c.mu.Lock()
	if e.Kind == protocol.Item {
		a.N = copy(a.Some[:], c.machine.Step(0, e))
		c.mu.Unlock()
		if a.N == 1 && a.Some[0].Verb == protocol.Deliver {
			return a
		}
	} else {
		now := time.Since(c.begun)
		a.N = copy(a.Some[:], c.machine.Step(now, e))
		c.timer = step.WakeUp(c.timer, c.machine.Wake()-now, c.machine.Wake() > 0, func() { c.step(protocol.Event{Kind: protocol.Tick}) })
		c.mu.Unlock()
	}
	for _, do := range a.All() {
		switch do.Verb {
		case protocol.SendStop:
			c.sendStop(streamerr.Via(c.self, do.Err), do.Grace)
		case protocol.Reset:
			c.events.Resetting(observer.CallReset, streamerr.Via(c.self, do.Err))
			c.cut(do.Err)
		case protocol.Confirm:
			c.flow.Note(observer.Event{Kind: observer.Confirmed})
		case protocol.Unconfirmed:
			c.flow.Note(observer.Event{Kind: observer.Unconfirmed})
		case protocol.Leave:
			c.left = true
			c.flow.Note(observer.Event{Kind: observer.CalleeLeft})
		default:
		}
	}
	return a
}
