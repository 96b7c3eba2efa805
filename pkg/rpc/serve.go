package rpc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/whence-dev/whence/internal/bigstack"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/rpc/cause"
	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/direct"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/rpc/protocol"
	"github.com/whence-dev/whence/pkg/rpc/step"
	"github.com/whence-dev/whence/pkg/rpc/wire"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Serve answers one call of a bidi method with engine, and returns the result of the handler. The
// stream ends once: with an End message and status OK, or with a status that carries reason and
// path. A caller that half-closes after its request gets the whole answer. A caller that sends a
// Stop gets the ending in the trailers. A caller that resets the call or vanishes stops the engine
// with PEER_RESET.
//
// On links, the engine starts on the handler's goroutine, the Loop that reads an item from below also
// sends it, and Serve returns loop.ErrLeft while the stream needs no goroutine: the handler must then
// return this error at once. If the caller is a Dial in this process (package inprocess), the items go
// to its reader, as if the two were one hop. Over other connections, Send blocks while the caller does
// not read, and only the return of the handler unblocks Send. So there the engine has a goroutine of its
// own.
func Serve[Req, In, Out any](h *Hop, st grpc.BidiStreamingServer[In, Out], m *Method[Req, In, Out], engine stream.Engine[Req, *Out]) error {
	answer := func(Outcome) error { return nil } // the messages were the answer
	send := func(_ *stream.Loop, out *Out) error { return st.Send(out) }
	if sink := loop.SinkOf(st); sink != nil {
		send = func(on *stream.Loop, out *Out) error {
			sink.Carried(on)
			return st.Send(out)
		}
	}
	return serve(h, st, m, engine, protocol.CalleeConfig{}, send, answer)
}

func serve[Req, In, Out any](h *Hop, st grpc.BidiStreamingServer[In, Out], m *Method[Req, In, Out], engine stream.Engine[Req, *Out],
	config protocol.CalleeConfig, send func(*stream.Loop, *Out) error, reply func(Outcome) error) error {
	incoming := wire.Incoming(st.Context())
	req, id, err := receive(h, st, m)
	if err != nil {
		return h.refuse(err)
	}
	inbox := m.inbox(req)
	config.Sequence = inbox != nil
	s, end, err := h.serve(incoming, id, m.owner(req), config)
	if err != nil {
		return h.refuse(err)
	}
	sink := loop.SinkOf(st)
	var status error // of the call, once ended is done
	var ended sync.WaitGroup
	ended.Add(1)
	detach := s.attach(sink, end, func(err error, trailer metadata.MD, returning bool) {
		if sink != nil && !returning {
			sink.Finish(err, trailer)
		} else {
			st.SetTrailer(trailer)
		}
		status = err
		ended.Done()
	})
	readRequests(s, st, sink, m, inbox) // until the call is over
	a := &answer{callee: s, sink: sink, reply: reply, detach: detach}
	ctx := touched(s.ctx, st)
	if take, ok := direct.Take[Out](incoming); ok {
		send = func(on *stream.Loop, out *Out) error { take(on, out); return nil } //nolint:unparam // the type of send
	} else if sink == nil && !config.Whole {
		ctx = stream.WithBlocking(ctx)
	}
	start := func() { run(ctx, a, m, engine, req, send) }
	if sink != nil {
		if start(); a.leave() {
			return loop.ErrLeft
		}
	} else {
		bigstack.Go(start)
	}
	ended.Wait()
	return status
}

// run starts the engine of a call. The drain of the hop's live streams awaits it.
func run[Req, In, Out any](ctx context.Context, a *answer, m *Method[Req, In, Out], engine stream.Engine[Req, *Out], req Req, send func(*stream.Loop, *Out) error) {
	ctx = prefetch.With(ctx, prefetch.Of(a.callee), prefetch.Of(a.machine), prefetch.Func(send))
	d := &driver[Req, In, Out]{ctx: ctx, hop: a.hop, m: m, send: sending(a.callee, send), ended: a.conclude, verbatim: true}
	d.start(engine, req)
}

// An answer ends a call with the outcome of its engine.
type answer struct {
	*callee
	sink   loop.Sink                       // nil if the call is not over a link
	reply  func(Outcome) error             // sends the outcome, unless the messages were the answer
	detach func(o Outcome, returning bool) // from attach

	decided atomic.Bool // the handler has left, or the stream has ended first
}

// leave reports whether the handler of a call over a link leaves: the stream has not ended yet.
func (a *answer) leave() bool { return !a.decided.Swap(true) }

// conclude ends the call.
func (a *answer) conclude(o Outcome) {
	left := a.decided.Swap(true)
	if left {
		defer a.sink.Release()
	}
	exited := o.Err != nil && stream.FailureOf(o.Err) != nil // then the handler may not return
	a.detach(a.close(o, func() error { return a.reply(o) }), !left && !exited)
}

// attach tells the machine about stops and the end of the call. detach ends the stream with end.
// finish ends the call, once: when the current message is abandoned, or by detach, with the outcome of
// the engine. returning reports that Serve will return the status.
func (s *callee) attach(sink loop.Sink, end func(), finish func(status error, trailer metadata.MD, returning bool)) (detach func(o Outcome, returning bool)) {
	s.abandon = func(lost bool) {
		o := Outcome{Err: streamerr.Via(s.hop.Name, stream.Cause(s.ctx))}
		if !lost && !s.tell(o) { // the machine does not know yet that the caller has gone
			s.gone(wire.Lost(s.call))
		}
		finish(o.Status(), s.trailer(o), false)
	}
	stopped := stream.AtStop(s.ctx, func(error) { s.halt() })
	killed := stream.AtKill(s.ctx, func() { s.step(protocol.Event{Kind: protocol.Killed, Err: stream.Cause(s.ctx)}) })
	lost := afterCall(s.call, sink, func() { s.step(protocol.Event{Kind: protocol.Lost, Err: wire.Lost(s.call)}) })
	return func(o Outcome, returning bool) {
		stopped()
		killed()
		lost()
		trailer := s.trailer(o)
		end()                       // exports the trace, which includes the ending sent to the caller
		if !s.machine.Abandoned() { // final: end has awaited all steps with actions
			finish(o.Status(), trailer, returning)
		}
	}
}

// receive returns the request of a call, and its stream id. A panic of m ends only this call.
func receive[Req, In, Out any](h *Hop, st grpc.BidiStreamingServer[In, Out], m *Method[Req, In, Out]) (req Req, id *string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = h.panicked(st.Context(), v)
		}
	}()
	first, err := st.Recv()
	if cause.Classified(err) { // the server itself has ended the call with a reason
		return req, nil, err
	}
	if err != nil {
		return req, nil, streamerr.New(streamerr.Invalid, "the call ended before its request: %v", err)
	}
	req, ok := m.opened(first)
	if !ok {
		return req, nil, streamerr.New(streamerr.Invalid, "the first message must be the request")
	}
	return req, m.id(req), nil
}

// ServeUnary runs engine for a unary method, and passes each item to collect. With package guard,
// the ending is recorded when the answer has been sent; otherwise when ServeUnary returns.
func ServeUnary[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Engine[Req, *Out], req Req, collect func(*Out)) error {
	call := wire.Incoming(ctx)
	s, end, err := h.serve(call, m.id(req), m.owner(req), protocol.CalleeConfig{Whole: true})
	if err != nil {
		return h.refuse(err)
	}
	s.step(protocol.Event{Kind: protocol.HalfClose})
	unhook := context.AfterFunc(call, func() { s.step(protocol.Event{Kind: protocol.Lost, Err: wire.Lost(call)}) })
	undo := stream.AtStop(s.ctx, func(error) { s.halt() })
	ended := make(chan Outcome, 1)
	d := &driver[Req, In, Out]{
		ctx: s.ctx, hop: h, m: m, verbatim: true, ended: func(o Outcome) { ended <- o },
		send: sending(s, func(_ *stream.Loop, out *Out) error { collect(out); return nil }),
	}
	d.start(engine, req)
	o := <-ended
	undo()
	_ = grpc.SetTrailer(s.ctx, s.trailer(o)) // fails only if there is no call to answer
	finish := func(err error) {
		unhook()
		if errors.Is(err, delivery.ErrUnencodable) { // then grpc-go ends the call, as if the caller had left
			o = Outcome{Err: streamerr.Via(h.Name, err)}
		}
		s.close(o, func() error { return err })
		end()
	}
	if o.Err != nil || !delivery.After(ctx, finish) {
		finish(nil)
	}
	return o.Status()
}

// A callee is the callee's end of a call, after the request.
type callee struct {
	hop       *Hop
	call, ctx context.Context //nolint:containedctx // the call's and the stream's
	begun     time.Time
	answers   bool            // an item has been passed to send
	abandon   func(lost bool) // abandons the current message; lost reports whether the machine knows that the caller has gone

	mu      sync.Mutex // guards the following fields
	machine *protocol.Callee
	timer   *time.Timer // nil until the machine wants a Tick
	running step.Running
}

// serve registers the stream of call. The caller of serve must call end when the call is over.
func (h *Hop) serve(call context.Context, id *string, owner string, config protocol.CalleeConfig) (s *callee, end func(), err error) {
	config.Grace = h.grace()
	ctx, release, err := h.Begin(call, id, owner, wire.Address(call), nil)
	if err != nil {
		return nil, nil, err
	}
	s = &callee{hop: h, call: call, ctx: ctx, begun: time.Now(), abandon: func(bool) {}, machine: protocol.NewCallee(config)}
	return s, func() {
		s.running.Stop(&s.mu, &s.timer)
		release()
	}, nil
}

// halt tells the machine that the stream was stopped.
func (s *callee) halt() {
	s.step(protocol.Event{Kind: protocol.Halt, Err: stream.Cause(s.ctx), Grace: stream.ControlOf(s.ctx).Grace()})
}

// step steps the machine, executes the actions that need no answer, and returns the first action.
func (s *callee) step(e protocol.Event) (first protocol.Action, any bool) {
	if e.Kind != protocol.Item && e.Kind != protocol.Sent {
		return s.stepSlow(e)
	}
	s.mu.Lock()
	if out := s.machine.Step(0, e); len(out) > 0 {
		first, any = out[0], true
	}
	s.mu.Unlock()
	return first, any
}

// stepSlow is step for all events except Item and Sent. It uses defer, which costs too much for each
// of those.
func (s *callee) stepSlow(e protocol.Event) (first protocol.Action, any bool) {
	var a step.Actions
	s.mu.Lock()
	now := time.Since(s.begun)
	a.N = copy(a.Some[:], s.machine.Step(now, e))
	s.timer = step.WakeUp(s.timer, s.machine.Wake()-now, s.machine.Wake() > 0, func() { s.step(protocol.Event{Kind: protocol.Tick}) })
	lost := s.machine.Lost()
	s.running.Begin()
	s.mu.Unlock()
	defer s.running.End(&s.mu)
	ctl := stream.ControlOf(s.ctx)
	for _, do := range a.All() {
		switch do.Verb {
		case protocol.StopEngine:
			ctl.StopWithin(do.Err, do.Grace)
		case protocol.Kill:
			ctl.Kill(do.Err)
		case protocol.Abandon:
			s.abandon(lost)
		case protocol.Gone:
			s.gone(streamerr.As(do.Err))
		default:
		}
	}
	return a.Some[0], a.N > 0
}

// close answers with the outcome, unless the machine decides otherwise, and records the outcome.
func (s *callee) close(o Outcome, answer func() error) Outcome {
	var why error
	if o.Err != nil {
		why = o.Err
	}
	do, _ := s.step(protocol.Event{Kind: protocol.Done, Err: why})
	answered := do.Verb == protocol.Answer
	if answered {
		do, _ = s.step(protocol.Event{Kind: protocol.Answered, Err: s.answer(answer)})
	}
	if do.Verb == protocol.Record && do.Err != nil && why == nil {
		o = Outcome{Err: streamerr.Via(s.hop.Name, do.Err)}
	}
	if !answered || !s.tell(o) {
		s.lost()
	}
	s.hop.close(s.ctx, o, s.begun)
	return o
}

// tell records that the caller receives the outcome. It returns false if the caller has gone.
func (s *callee) tell(o Outcome) bool {
	if s.call.Err() != nil {
		return false
	}
	s.hop.attempt(s.ctx, func() { o.EndingSent(s.ctx, o.Reason().Code().String()) })
	return true
}

// gone records that the caller of a stopped stream has gone.
func (s *callee) gone(how *streamerr.Error) {
	why := streamerr.As(stream.Cause(s.ctx))
	observer.Of(s.ctx).Note(observer.Event{Kind: observer.CallerGone, Err: how, Reason: why.Reason, Path: why.Path})
}

// answer calls send and returns why the caller did not get the answer, or nil. A panic of send
// becomes an error of this call alone.
func (s *callee) answer(send func() error) (failed error) {
	defer func() {
		if v := recover(); v != nil {
			failed = s.hop.panicked(s.ctx, v)
		}
	}()
	if err := send(); err != nil {
		return s.unsent(err)
	}
	return nil
}

// unsent returns the error that ends a stream after a failed Send: the call is over, unless the
// message was at fault.
func (s *callee) unsent(err error) *streamerr.Error {
	if fault, ok := errors.AsType[*streamerr.Error](err); ok {
		return fault
	}
	gone := wire.Lost(s.call)
	gone.Cause = err
	return gone
}

// sending returns the send function of a driver. The function reports the beginning of the answer to
// the observer, and asks the machine about each message.
func sending[Out any](s *callee, send func(*stream.Loop, *Out) error) func(*stream.Loop, *Out) error {
	return func(on *stream.Loop, out *Out) error {
		if do, _ := s.step(protocol.Event{Kind: protocol.Item}); do.Verb != protocol.Deliver {
			return stream.Cause(s.ctx)
		}
		if !s.answers {
			s.answers = true
			observer.Of(s.ctx).Note(observer.Event{Kind: observer.Answering})
		}
		err := delivery.Fault(out, send(on, out))
		if errors.Is(err, delivery.ErrUnencodable) { // an error of this hop: the caller may still be there
			s.step(protocol.Event{Kind: protocol.Sent})
			return err
		}
		if err == nil {
			if _, dropped := s.step(protocol.Event{Kind: protocol.Sent}); dropped {
				return stream.Cause(s.ctx)
			}
			return nil
		}
		s.step(protocol.Event{Kind: protocol.Unsent, Err: s.unsent(err)})
		on.Wait()
		<-stream.Stopping(s.ctx) // closes at the latest when the grace is over
		return stream.Cause(s.ctx)
	}
}

// trailer returns the trailers of an ended stream.
func (s *callee) trailer(o Outcome) metadata.MD {
	generated, consumed := 0, 0
	s.hop.attempt(s.ctx, func() {
		flow := observer.Of(s.ctx)
		generated, consumed = flow.Generated(), flow.Consumed()
	})
	return wire.EndTrailer(o.Reason(), o.Path(), generated, consumed)
}
