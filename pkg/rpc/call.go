package rpc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/whence-dev/whence/pkg/rpc/cause"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/rpc/protocol"
	"github.com/whence-dev/whence/pkg/rpc/report"
	"github.com/whence-dev/whence/pkg/rpc/step"
	"github.com/whence-dev/whence/pkg/rpc/wire"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A call is the part of the caller's end of a call that depends neither on the kind of method nor
// on its messages.
type call struct {
	self, peer string
	ctx        context.Context //nolint:containedctx // the stream's
	callCtx    context.Context //nolint:containedctx // not derived from ctx: if the call ended with ctx, its reset would overtake the Stop with the cause
	cut        context.CancelCauseFunc
	canceler   loop.Canceler // of callCtx
	flow       observer.Flow
	events     report.Call
	begun      time.Time
	sendStop   func(told *streamerr.Error, grace time.Duration)
	undo       func() bool
	swift      atomic.Bool    // sendStop does not block; set before the machine gets Opened
	stopping   sync.WaitGroup // until the stop from above has been handled, if there is one

	left bool // the caller has abandoned the callee; owned by the step that executes Leave

	mu      sync.Mutex // guards the following fields
	machine *protocol.Caller
	timer   *time.Timer // nil until the machine wants a Tick
	running step.Running
}

// begin returns false if the stream was stopped before the call. Otherwise the caller must call
// end.
func (c *call) begin(ctx context.Context, self, peer string, config protocol.CallerConfig, sendStop func(*streamerr.Error, time.Duration)) bool {
	if cause.Of(ctx) != nil {
		return false
	}
	stream.NoteCallee(ctx, peer)
	config.Self, config.Peer, config.Grace = self, peer, stream.ControlOf(ctx).Grace()
	c.self, c.peer, c.ctx, c.sendStop = self, peer, ctx, sendStop
	c.callCtx, c.cut = context.WithCancelCause(context.WithoutCancel(wire.Outgoing(ctx, self)))
	c.flow, c.begun = observer.Of(ctx), time.Now()
	c.events.Flow, c.events.Peer = c.flow, peer
	c.machine = protocol.NewCaller(config)
	c.events.Opening(wire.Via(ctx).Append(self))
	c.step(protocol.Event{Kind: protocol.Open})
	c.stopping.Add(1)
	stop := func() {
		defer c.stopping.Done()
		c.stop()
	}
	c.undo = stream.AtStop(ctx, func(error) {
		if c.swift.Load() {
			stop()
		} else {
			go stop()
		}
	})
	return true
}

// stop passes the stop of ctx's stream to the machine. If the Control of the whole hop is still
// live, only this call is stopped: the stream continues on another worker. Otherwise the call has
// no more time than the hop.
func (c *call) stop() {
	grace, part := stream.ControlOf(c.ctx).Grace(), false
	if root, ok := c.ctx.Value(rootKey{}).(*stream.Control); ok {
		if part = root.State() == stream.Live; !part {
			grace = min(grace, root.Grace())
		}
	}
	c.step(protocol.Event{Kind: protocol.Stop, Err: cause.Of(c.ctx), Grace: grace, Part: part})
}

// end frees the resources of the call, which is over.
func (c *call) end() {
	if !c.undo() {
		c.stopping.Wait()
	}
	c.running.Stop(&c.mu, &c.timer)
	over := observer.CallOver
	if c.left {
		over = observer.CalleeGone
	}
	c.flow.Note(observer.Event{Kind: over})
	c.cancel(nil)
}

// cancel cancels the call. cause may be nil.
func (c *call) cancel(cause error) {
	c.cut(cause)
	c.canceler.Cancel()
}

// ended passes the end of the call to the machine. err is the error of Recv.
func (c *call) ended(st grpc.ClientStream, err error) step.Actions {
	if cause.Of(c.ctx) != nil {
		c.stop() // the function of AtStop may not have run yet
	}
	over := protocol.Event{Kind: protocol.Over, Own: wire.OwnEnding(st, err)}
	if e := streamerr.FromGRPC(c.peer, err); e != nil {
		over.Err = e
	}
	c.events.Over(st, err)
	return c.step(over)
}

// consumed reports the number of tokens that engines got as input, from the trailers of the call.
func (c *call) consumed(trailers metadata.MD) {
	if n := wire.Consumed(trailers); n > 0 {
		c.flow.Note(observer.Event{Kind: observer.Consumed, Tokens: n})
	}
}

// step passes an event to the machine, and executes the actions that do not concern the reader.
func (c *call) step(e protocol.Event) (a step.Actions) {
	if e.Kind != protocol.Item {
		c.stepSlow(e, &a)
		return a
	}
	c.mu.Lock()
	a.N = copy(a.Some[:], c.machine.Step(0, e))
	c.mu.Unlock()
	if a.N != 1 || a.Some[0].Verb != protocol.Deliver {
		c.execute(&a)
	}
	return a
}

// stepSlow is step for all events except Item. It may use defer, which costs too much for each
// item.
func (c *call) stepSlow(e protocol.Event, a *step.Actions) {
	c.mu.Lock()
	now := time.Since(c.begun)
	a.N = copy(a.Some[:], c.machine.Step(now, e))
	c.timer = step.WakeUp(c.timer, c.machine.Wake()-now, c.machine.Wake() > 0, func() { c.step(protocol.Event{Kind: protocol.Tick}) })
	c.running.Begin()
	c.mu.Unlock()
	defer c.running.End(&c.mu)
	c.execute(a)
}

// execute executes the actions that do not concern the reader.
func (c *call) execute(a *step.Actions) {
	for _, do := range a.All() {
		switch do.Verb {
		case protocol.SendStop:
			c.sendStop(streamerr.Via(c.self, do.Err), do.Grace)
		case protocol.Reset:
			c.events.Resetting(observer.CallReset, streamerr.Via(c.self, do.Err))
			c.cancel(do.Err)
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
}
