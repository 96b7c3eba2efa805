package kitexstream

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"

	"github.com/bytedance/gopkg/cloud/metainfo"
	"github.com/cloudwego/kitex/pkg/endpoint/cep"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/metadata"
	"github.com/cloudwego/kitex/pkg/remote/trans/ttstream"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	kstreaming "github.com/cloudwego/kitex/pkg/streaming"

	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc/ttcause"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// middleware measures the streams of a client.
func (s clientSuite) middleware(next cep.StreamEndpoint) cep.StreamEndpoint {
	return func(ctx context.Context) (kstreaming.ClientStream, error) {
		ri := rpcinfo.GetRPCInfo(ctx)
		if ri == nil || !streaming(ri) {
			return next(ctx)
		}
		ctx, release := telemetry.Link(ctx)
		call := &clientCall{
			above: telemetry.From(ctx), ri: ri, release: release,
			why:    func() *streamerr.Error { return telemetry.Cause(ctx) },
			stream: s.monitor.Begin(ctx, telemetry.Call{Method: method(telemetry.Client, ri), Peer: ri.To().ServiceName()}),
		}
		st, err := next(call.outgoing(ctx, s.forward))
		if err != nil {
			call.finish(err)
			return nil, err
		}
		call.stream.Note(streamtrace.SendHeader, "", nil)
		w := &clientStream{ClientStream: st, call: call}
		if getter, ok := st.(kstreaming.GRPCStreamGetter); ok {
			w.grpc = getter.GetGRPCStream()
		}
		call.mu.Lock()
		call.unwatch = context.AfterFunc(ctx, call.canceled) // canceled waits for mu
		call.mu.Unlock()
		runtime.AddCleanup(w, (*clientCall).dropped, call) // for a caller that neither reads to the end nor cancels
		return w, nil
	}
}

// A clientCall is one stream of a client.
type clientCall struct {
	// Static.
	stream  *telemetry.Stream
	above   *telemetry.Stream // the stream of the handler that made the call, or nil
	ri      rpcinfo.RPCInfo
	why     func() *streamerr.Error // the cause of the call's context, or nil
	release func() bool             // of telemetry.Link

	mu      sync.Mutex              // guards the following fields
	unwatch func() bool             // stops watching the call's context; nil before the call has begun
	trailer func(key string) string // nil until the callee's trailer has arrived
	sendErr error                   // the first error of Send
	ended   bool
}

type callKey struct{}

// outgoing adds the path and the trace to the headers of a call. Transient metainfo is for the next
// hop only.
func (c *clientCall) outgoing(ctx context.Context, forward bool) context.Context {
	grpc := system(c.ri) == telemetry.GRPC
	md := metadata.MD{}
	if old, ok := metadata.FromOutgoingContext(ctx); ok && grpc {
		md = old.Copy()
	}
	c.stream.Headers(func(key, value string) {
		md.Set(key, value)
		if !grpc {
			ctx = metainfo.WithValue(ctx, key, value) //nolint:fatcontext // at most three headers
		}
	})
	ctx = context.WithValue(ctx, callKey{}, c)
	switch {
	case grpc:
		return metadata.NewOutgoingContext(ctx, md)
	case forward:
		return causeContext{ctx}
	default:
		return ctx
	}
}

// A causeContext is the context of a call with ForwardCauses. Kitex sends the result of Err with
// the reset: the typed cause if there is one, otherwise the error of the context, from which Kitex
// makes its own exceptions.
type causeContext struct {
	context.Context //nolint:containedctx // it is a context
}

// Err implements context.Context.
func (c causeContext) Err() error {
	err := c.Context.Err()
	if err == nil {
		return nil
	}
	cause := telemetry.Cause(c.Context)
	if ex, ok := errors.AsType[*ttstream.Exception](cause.Cause); ok && !typedCause(ex) {
		return ex // the caller's reset over TTHeader Streaming: Kitex adds this hop to its path
	}
	own := context.Cause(c.Context)
	_, typed := errors.AsType[*streamerr.Error](own)
	if _, ok := errors.AsType[streamerr.Reason](own); !ok && !typed && len(cause.Path) == 0 {
		return err // an untyped error of the application
	}
	if call, ok := c.Value(callKey{}).(*clientCall); ok {
		cause = call.sent(cause)
	}
	return ttcause.Error(cause, cause)
}

// sent returns the form of a cause that leaves the process: with the path up to this hop, and
// without the text of another error. Kitex itself adds the name of the client if it is set.
func (c *clientCall) sent(cause *streamerr.Error) *streamerr.Error {
	out := *c.stream.Arrived(cause)
	if c.ri.From().ServiceName() != "" {
		out.Path = out.Path[:len(out.Path)-1]
	}
	if out.Message == "" {
		out.Message = out.Reason.Error()
	}
	return &out
}

// events records the headers and trailers that Kitex's transports receive.
var events = rpcinfo.ClientStreamEventHandler{
	HandleStreamRecvHeaderEvent: func(ctx context.Context, _ rpcinfo.RPCInfo, _ rpcinfo.StreamRecvHeaderEvent) {
		if c, ok := ctx.Value(callKey{}).(*clientCall); ok {
			c.stream.Note(streamtrace.RecvHeader, "", nil)
		}
	},
	HandleStreamFinishEvent: func(ctx context.Context, _ rpcinfo.RPCInfo, e rpcinfo.StreamFinishEvent) {
		c, ok := ctx.Value(callKey{}).(*clientCall)
		switch {
		case !ok:
		case e.GRPCTrailer != nil:
			c.gotTrailer(func(key string) string {
				if values := metadata.MD(e.GRPCTrailer).Get(key); len(values) > 0 {
					return values[0]
				}
				return ""
			})
		case e.TTStreamTrailer != nil:
			c.gotTrailer(func(key string) string { return e.TTStreamTrailer[key] })
		}
	},
}

// gotTrailer keeps the callee's trailer. The caller may not have read the last messages yet.
func (c *clientCall) gotTrailer(get func(key string) string) {
	c.mu.Lock()
	again := c.trailer != nil
	c.trailer = get
	c.mu.Unlock()
	if !again {
		c.stream.Note(streamtrace.RecvTrailer, "", trailerEnding(get))
	}
}

// trailerEnding returns the ending in the trailer of a server with a suite, or nil.
func trailerEnding(get func(key string) string) *streamerr.Error {
	if get == nil {
		return nil
	}
	reason := streamerr.ParseReason(get(streamerr.ReasonTrailer))
	if reason == streamerr.Unspecified {
		return nil
	}
	return &streamerr.Error{Reason: reason, Path: streamerr.ParsePath(get(streamerr.PathTrailer))}
}

// finish ends the stream with the result of Recv or of the call: nil and io.EOF mean that the
// stream is complete.
func (c *clientCall) finish(err error) {
	c.end(err, func(trailer func(string) string) *streamerr.Error { return c.ending(err, trailer) })
}

// left ends the stream because this hop left it. The callee's trailer says how the stream ended if
// it has arrived with an ending.
func (c *clientCall) left(why *streamerr.Error, reset bool) {
	c.end(why, func(trailer func(string) string) *streamerr.Error {
		if e := trailerEnding(trailer); e != nil {
			return e
		}
		if reset && trailer == nil {
			c.stream.Note(streamtrace.SendRst, resetCode(why), c.stream.Arrived(why))
		}
		return why
	})
}

// end ends the stream once. err is what the caller receives.
func (c *clientCall) end(err error, ending func(trailer func(string) string) *streamerr.Error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	trailer, unwatch := c.trailer, c.unwatch
	c.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	c.release()
	c.stream.End(ending(trailer))
	if err != nil && !errors.Is(err, io.EOF) {
		c.above.Below(err, c.stream.Ending())
	}
}

// ending returns the ending of a stream that returned err to its reader, and records the reset or
// trailer that came with it.
func (c *clientCall) ending(err error, trailer func(key string) string) *streamerr.Error {
	done := err == nil || errors.Is(err, io.EOF)
	e := trailerEnding(trailer)
	if trailer == nil && (done || inTrailer(err)) { // Kitex reports no empty trailer of TTHeader Streaming
		c.stream.Note(streamtrace.RecvTrailer, "", nil)
		trailer = func(string) string { return "" }
	}
	code, biz := answered(err)
	if biz {
		c.stream.Answered(code)
	}
	if e != nil && !done && !biz && e.Reason == streamerr.Completed { // the callee has completed, and this hop could not read it
		e = nil
	}
	switch {
	case e != nil && biz:
	case e != nil:
		if !done {
			e.Message, e.Cause = classify(err).Text(), err
		}
	case done, biz:
		e = telemetry.Completed()
	default:
		if trailer == nil {
			if why := c.why(); why != nil {
				c.stream.Note(streamtrace.SendRst, resetCode(why), c.stream.Arrived(why))
				return why
			}
		}
		own := *classify(err)
		if trailer == nil && own.Reason == streamerr.Deadline && len(own.Path) == 0 { // Kitex's own timer for Recv
			c.stream.Note(streamtrace.SendRst, resetCode(&own), c.stream.Arrived(&own))
			return &own
		}
		e = &own
	}
	if len(e.Path) == 0 {
		e.Path = streamerr.NewPath(c.stream.Peer())
	}
	if trailer == nil {
		c.stream.Note(streamtrace.RecvRst, resetCode(e), e)
	}
	return e
}

// inTrailer reports whether err came in a trailer of TTHeader Streaming.
func inTrailer(err error) bool {
	ex, ok := errors.AsType[*ttstream.Exception](err)
	return ok && ex.TypeId() == ttApplication
}

// canceled ends a stream whose context is done. Kitex itself notices that only in Recv, or by a
// ticker.
func (c *clientCall) canceled() { c.left(c.why(), true) }

var errDropped = streamerr.New(streamerr.PeerReset, "the caller dropped the stream without reading its end")

// dropped ends a stream whose reader was garbage-collected. Kitex does not tell the callee.
func (c *clientCall) dropped() {
	c.mu.Lock()
	trailer, err := c.trailer, c.sendErr
	c.mu.Unlock()
	if err != nil && trailer == nil {
		c.finish(err)
		return
	}
	c.left(errDropped, false)
}

func (c *clientCall) sentMsg(err error) {
	if err == nil {
		c.stream.Sent(int(c.ri.Stats().LastSendSize()))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sendErr == nil {
		c.sendErr = err
	}
}

func (c *clientCall) received(err error) {
	if err == nil {
		c.stream.Received(int(c.ri.Stats().LastRecvSize()))
	}
	if err != nil || c.ri.Invocation().StreamingMode() == serviceinfo.StreamingClient { // one response ends the stream
		c.finish(err)
	}
}
