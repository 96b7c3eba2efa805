package kitexstream

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"

	"github.com/bytedance/gopkg/cloud/metainfo"
	"github.com/cloudwego/kitex/pkg/endpoint/cep"
	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/metadata"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	kstreaming "github.com/cloudwego/kitex/pkg/streaming"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// middleware measures the streams of a client.
func (s clientSuite) middleware(next cep.StreamEndpoint) cep.StreamEndpoint {
	return func(ctx context.Context) (kstreaming.ClientStream, error) {
		ri := rpcinfo.GetRPCInfo(ctx)
		if ri == nil || !streaming(ri) {
			return next(ctx)
		}
		ctx, release := monitor.Link(ctx)
		call := &clientCall{
			above: monitor.From(ctx), ri: ri, release: release,
			why:    func() *streamerr.Error { return monitor.Cause(ctx) },
			stream: s.monitor.Begin(ctx, monitor.Call{Method: method(monitor.Client, ri), Peer: ri.To().ServiceName()}),
		}
		st, err := next(call.outgoing(ctx, s.forward))
		if err != nil {
			call.finish(err)
			return nil, err
		}
		call.stream.Note(monitor.SendHeader, "", nil)
		w := &clientStream{ClientStream: st, call: call}
		if getter, ok := st.(kstreaming.GRPCStreamGetter); ok {
			w.grpc = getter.GetGRPCStream()
		}
		call.mu.Lock()
		call.unwatch = context.AfterFunc(ctx, call.canceled) // canceled waits for mu
		call.mu.Unlock()
		runtime.SetFinalizer(w, (*clientStream).dropped) // for a caller that neither reads to the end nor cancels
		return w, nil
	}
}

// A clientCall is one stream of a client.
type clientCall struct {
	// Static.
	stream  *monitor.Stream
	above   *monitor.Stream // the stream of the handler that made the call, or nil
	ri      rpcinfo.RPCInfo
	why     func() *streamerr.Error // the cause of the call's context, or nil
	release func() bool             // of monitor.Link
	headed  sync.Once               // the callee's header is recorded once

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
	grpc := system(c.ri) == monitor.GRPC
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
	cause := monitor.Cause(c.Context)
	if x, ok := asException(cause.Cause); ok && !x.mayHaveCause() {
		return x.err // the caller's reset over TTHeader Streaming: Kitex adds this hop to its path
	}
	var (
		own    = context.Cause(c.Context)
		typed  *streamerr.Error
		reason streamerr.Reason
	)
	if !errors.As(own, &typed) && !errors.As(own, &reason) && len(cause.Path) == 0 {
		return err // an untyped error of the application
	}
	if call, ok := c.Value(callKey{}).(*clientCall); ok {
		cause = call.sent(cause)
	}
	return sentCause(cause)
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

// gotTrailer keeps the callee's trailer. The caller may not have read the last messages yet.
func (c *clientCall) gotTrailer(get func(key string) string) {
	c.mu.Lock()
	again := c.trailer != nil
	c.trailer = get
	c.mu.Unlock()
	if !again {
		c.stream.Note(monitor.RecvTrailer, "", trailerEnding(get))
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
			c.stream.Note(monitor.SendRst, resetCode(why), c.stream.Arrived(why))
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
	if !complete(err) {
		c.above.Below(err, c.stream.Ending())
	}
}

// ending returns the ending of a stream that returned err to its reader, and records the reset or
// trailer that came with it.
func (c *clientCall) ending(err error, trailer func(key string) string) *streamerr.Error {
	done := complete(err)
	e := trailerEnding(trailer)
	if trailer == nil && (done || inTrailer(err)) { // Kitex reports no empty trailer of TTHeader Streaming
		c.stream.Note(monitor.RecvTrailer, "", nil)
		trailer = func(string) string { return "" }
	}
	code, biz := Answer(err)
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
			e.Message, e.Cause = Classify(c.stream.Peer(), err).Text(), err
		}
	case done, biz:
		e = monitor.Completed()
	default:
		if trailer == nil {
			if why := c.why(); why != nil {
				c.stream.Note(monitor.SendRst, resetCode(why), c.stream.Arrived(why))
				return why
			}
		}
		var origin Origin
		e, origin = classify(err)
		if trailer == nil && e.Reason == streamerr.Deadline && origin == Self { // Kitex's own timer for Recv
			c.stream.Note(monitor.SendRst, resetCode(e), c.stream.Arrived(e))
			return e
		}
	}
	if len(e.Path) == 0 {
		e.Path = streamerr.NewPath(c.stream.Peer())
	}
	if trailer == nil {
		c.stream.Note(monitor.RecvRst, resetCode(e), e)
	}
	return e
}

// inTrailer reports whether err came in a trailer of TTHeader Streaming.
func inTrailer(err error) bool {
	if x, ok := asException(err); ok {
		return x.code == ttApplication
	}
	_, biz := kerrors.FromBizStatusError(err)
	return biz || err != nil && strings.HasPrefix(err.Error(), "[application exception]") // before Kitex 0.15
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
