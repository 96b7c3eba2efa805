package rpc

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Serve answers one call of a bidi method with engine, and returns what the handler must return. The stream ends once:
// with an End message and status OK, or with a status that carries reason and path. A caller that half-closes after its
// request is served to the end; one that sends a Stop hears the ending in the trailers; one that resets or vanishes stops
// the engine with PEER_RESET.
func Serve[Req, In, Out any](h *Hop, st grpc.BidiStreamingServer[In, Out], m *Method[Req, In, Out], engine stream.Engine[Req, *Out]) error {
	incoming := withIncomingVia(st.Context())
	req, id, err := receive(h, st, m)
	if err != nil {
		return h.refuse(err)
	}
	heard := make(chan struct{}) // closed when nothing more can come from the caller
	lost := func() *streamerr.Error {
		select {
		case <-heard: // a Stop that came before the call's end says more than the end
		case <-time.After(h.grace()):
		}
		return callLost(incoming)
	}
	ctx, end, err := h.Begin(incoming, id, m.owner(req), address(incoming), lost)
	if err != nil {
		return h.refuse(err)
	}
	go func() { // ends when st does, which is when this handler has returned
		defer close(heard)
		hear(ctx, h, st, m, req)
	}()
	d := delivery[Out]{send: st.Send, lost: lost}
	driven := make(chan Outcome, 1)
	go func() { // waited for below, or by whoever waits for the hop's live streams
		driven <- drive(ctx, h, m, engine, req, answering(ctx, func(out *Out) error { return d.pass(ctx, out) }), true)
	}()
	var o Outcome
	select {
	case o = <-driven:
		defer end()
	case <-ctx.Done():
		if !d.abandon() {
			o = <-driven
			defer end()
			break
		}
		// A call is over only when its handler has returned, and until then Send waits for a caller that does not read.
		o = Outcome{Err: streamerr.Via(h.Name, stream.Cause(ctx))}
		defer func() { go func() { <-driven; end() }() }()
	}
	st.SetTrailer(endTrailer(ctx, o))
	if incoming.Err() == nil { // else there is nobody to hear it
		o.Told(ctx, o.Reason().Code().String())
	}
	return o.status()
}

// receive returns the request of a call, and where its stream id is. A panic of m is an error of this call alone.
func receive[Req, In, Out any](h *Hop, st grpc.BidiStreamingServer[In, Out], m *Method[Req, In, Out]) (req Req, id *string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = h.panicked(st.Context(), v)
		}
	}()
	first, err := st.Recv()
	if classified(err) { // the server itself has ended the call, and says why
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

// ServeUnary runs engine for a unary method, and hands each item to collect.
func ServeUnary[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Engine[Req, *Out], req Req, collect func(*Out)) error {
	call := withIncomingVia(ctx)
	ctx, end, err := h.Begin(call, m.id(req), m.owner(req), address(call), func() *streamerr.Error { return callLost(call) })
	if err != nil {
		return h.refuse(err)
	}
	defer end()
	o := drive(ctx, h, m, engine, req, answering(ctx, func(out *Out) error { collect(out); return nil }), true)
	_ = grpc.SetTrailer(ctx, endTrailer(ctx, o)) // fails only where there is no call to answer
	if call.Err() == nil {
		o.Told(ctx, o.Reason().Code().String())
	}
	return o.status()
}

// ServeGather is Serve for a client-streaming method: each item goes to collect, and when the stream has completed, what done
// returns is the answer.
func ServeGather[Req, In, Out, Resp any](h *Hop, st grpc.ClientStreamingServer[In, Resp], m *Method[Req, In, Out], engine stream.Engine[Req, *Out], collect func(*Out), done func() *Resp) error {
	if err := Serve(h, gathering[In, Out, Resp]{st, collect}, m, engine); err != nil {
		return err
	}
	return st.SendAndClose(done())
}

// gathering is a call to which nothing is sent before all is there.
type gathering[In, Out, Resp any] struct {
	grpc.ClientStreamingServer[In, Resp]
	collect func(*Out)
}

// Send implements grpc.BidiStreamingServer.
func (g gathering[In, Out, Resp]) Send(out *Out) error {
	g.collect(out)
	return nil
}

// answering returns send, and notes the beginning of the answer.
func answering[Out any](ctx context.Context, send func(*Out) error) func(*Out) error {
	begun := false
	return func(out *Out) error {
		if !begun {
			begun = true
			observer.Of(ctx).Note(observer.Event{Kind: observer.Answering})
		}
		return send(out)
	}
}

// address says where a call comes from.
func address(call context.Context) string {
	if p, ok := peer.FromContext(call); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

func endTrailer(ctx context.Context, o Outcome) metadata.MD {
	return metadata.Pairs(streamerr.ReasonTrailer, o.Reason().String(), streamerr.PathTrailer, o.Path().String(),
		generatedTrailer, strconv.Itoa(observer.Of(ctx).Generated()))
}

// hear receives what follows on the request, until the call ends.
func hear[Req, In, Out any](ctx context.Context, h *Hop, st grpc.BidiStreamingServer[In, Out], m *Method[Req, In, Out], req Req) {
	ctl := stream.ControlOf(ctx)
	defer func() {
		if v := recover(); v != nil {
			ctl.Stop(h.panicked(ctx, v))
		}
	}()
	inbox := m.inbox(req)
	for {
		in, err := st.Recv()
		switch {
		case err != nil && inbox == nil:
			return // half-close, which is no cancel; a reset ends st.Context and is heard there
		case errors.Is(err, io.EOF):
			inbox.Close()
			return
		case err != nil:
			h.unheard(ctx, st.Context(), err)
			return
		}
		if stop, ok := m.stopped(in); ok {
			ctl.Stop(fromStop(ctx, stop, streamerr.UserStop))
			continue
		}
		if inbox == nil {
			ctl.Stop(streamerr.New(streamerr.Invalid, "only the first message may be a request"))
			continue
		}
		if err := inbox.Put(in, size(in)); err != nil {
			ctl.Stop(streamerr.New(streamerr.Invalid, "%v: wait for answers", err))
		}
	}
}

// unheard ends a stream that can hear no more of its request, unless the call is over: then that is why.
func (h *Hop) unheard(ctx, call context.Context, err error) {
	select {
	case <-call.Done():
	case <-ctx.Done():
	case <-time.After(h.grace()):
		e := streamerr.New(streamerr.Invalid, "a message of the caller could not be read: %s", status.Convert(err).Message())
		e.Cause = err
		stream.ControlOf(ctx).Stop(e)
	}
}

func size(m any) int {
	if m, ok := m.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}

// ErrUndelivered is what send returns to Drive for an item that nobody got, of a stream that is to go on.
var ErrUndelivered = errors.New("rpc: there is nobody to deliver to")

// Drive runs a stream that Begin took in: it ranges over the engine, passes its items to send, and says how the stream
// ended, to its caller and in the log. An error of send, but for ErrUndelivered, is why the stream stops. A panic is INTERNAL, and
// ends nothing but this stream.
func Drive[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Engine[Req, *Out], req Req, send func(*Out) error) Outcome {
	return drive(ctx, h, m, engine, req, send, false)
}

// drive is Drive. asItIs reports whether send sends the messages as they are, so that they have the size of what was sent.
func drive[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Engine[Req, *Out], req Req, send func(*Out) error, asItIs bool) (o Outcome) {
	begun := time.Now()
	defer func() {
		if v := recover(); v != nil {
			o = Outcome{Err: streamerr.Via(h.Name, h.panicked(ctx, v))}
		}
		h.close(ctx, o, begun)
	}()
	flow := observer.Of(ctx)
	flow.Note(observer.Event{Kind: observer.Running, Text: m.operation()})
	timers := h.watch(ctx)
	defer timers.end()
	for out, err := range engine(ctx, req) {
		if err != nil {
			return Outcome{Err: streamerr.Via(h.Name, ending(ctx, err))}
		}
		tokens := m.tokens(out)
		timers.item(tokens)
		end := m.end(out)
		if end != nil {
			end.Cross(h.Name)
		}
		if end != nil || m.started(out) {
			flow.Note(observer.Event{Kind: observer.Announced, Message: out})
		}
		timers.passing.Store(true)
		err := send(out)
		timers.passing.Store(false)
		switch {
		case err == nil && asItIs:
			flow.Sent(tokens, out)
		case err == nil:
			flow.Sent(tokens, nil)
		case !errors.Is(err, ErrUndelivered):
			stream.ControlOf(ctx).Stop(err)
			return Outcome{Err: streamerr.Via(h.Name, stream.Cause(ctx))}
		}
		if end != nil {
			return Outcome{End: end}
		}
	}
	if stopped := cause(ctx); stopped != nil {
		return Outcome{Err: streamerr.Via(h.Name, stopped)}
	}
	if m.endless() {
		return Outcome{End: &streamerr.Ending{Reason: streamerr.Completed, Path: &[]string{h.Name}}}
	}
	return Outcome{Err: streamerr.Via(h.Name, streamerr.New(streamerr.Internal, "the engine ended without an ending"))}
}
