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
		call := &clientCall{
			above: telemetry.From(ctx), ri: ri,
			stream: s.monitor.Begin(ctx, telemetry.Call{Method: method(telemetry.Client, ri), Peer: ri.To().ServiceName()}),
		}
		ctx = call.outgoing(ctx)
		call.why = func() *streamerr.Error { return telemetry.Cause(ctx) }
		st, err := next(ctx)
		if err != nil {
			call.over(err)
			return nil, err
		}
		call.stream.Note(streamtrace.SendHeader, "", nil)
		w := &clientStream{ClientStream: st, call: call}
		if getter, ok := st.(kstreaming.GRPCStreamGetter); ok {
			w.grpc = getter.GetGRPCStream()
		}
		call.mu.Lock()
		call.unwatch = context.AfterFunc(ctx, call.canceled) // which waits for mu
		call.mu.Unlock()
		runtime.AddCleanup(w, (*clientCall).dropped, call) // if the caller neither reads to the end nor cancels
		return w, nil
	}
}

// A clientCall is one stream of a client.
type clientCall struct {
	stream  *telemetry.Stream
	above   *telemetry.Stream // of the handler that made the call; nil for none
	ri      rpcinfo.RPCInfo
	why     func() *streamerr.Error // the cause of the call's context, or nil
	unwatch func() bool             // set before the caller has the stream

	mu      sync.Mutex              // guards the following fields
	trailer func(key string) string // nil until the callee's trailer has come
	sendErr error                   // the first
	ended   bool
}

type callKey struct{}

// outgoing adds the path and the trace headers to ctx.
func (c *clientCall) outgoing(ctx context.Context) context.Context {
	grpc := system(c.ri) == telemetry.GRPC
	c.stream.Headers(func(key, value string) {
		ctx = metainfo.WithValue(ctx, key, value) //nolint:fatcontext // for each of three headers at most
		if grpc {
			ctx = metadata.AppendToOutgoingContext(ctx, key, value)
		}
	})
	ctx = context.WithValue(ctx, callKey{}, c)
	if !grpc {
		ctx = cascade{ctx}
	}
	return ctx
}

// A cascade is the context of a call over TTHeader Streaming. When it is done its Err is the typed cause, which Kitex sends with
// the reset: it looks at Err alone, and loses the path of a context that was wrapped.
type cascade struct {
	context.Context //nolint:containedctx // it is a context
}

// Err implements context.Context.
func (c cascade) Err() error {
	err := c.Context.Err()
	if err == nil {
		return nil
	}
	cause := telemetry.Cause(c.Context)
	if ex, ok := errors.AsType[*ttstream.Exception](cause.Cause); ok && !typedCause(ex) {
		return ex // of the caller over TTHeader Streaming: Kitex adds this hop to its path
	}
	if len(cause.Path) > 0 || cause.Reason != streamerr.PeerReset && cause.Reason != streamerr.Deadline {
		if call, ok := c.Value(callKey{}).(*clientCall); ok {
			cause = call.sender(cause)
		}
		return ttcause.Error(cause, cause)
	}
	return err
}

// sender returns cause with the path up to this hop. If the client has a name in Kitex, Kitex adds it.
func (c *clientCall) sender(cause *streamerr.Error) *streamerr.Error {
	sent := *c.stream.Arrived(cause)
	if c.ri.From().ServiceName() != "" {
		sent.Path = sent.Path[:len(sent.Path)-1]
	}
	return &sent
}

// events is told what Kitex's transports see of a client's streams.
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

// gotTrailer keeps the callee's trailer. The last messages may not have been read yet.
func (c *clientCall) gotTrailer(get func(key string) string) {
	c.mu.Lock()
	again := c.trailer != nil
	c.trailer = get
	c.mu.Unlock()
	if !again {
		c.stream.Note(streamtrace.RecvTrailer, "", trailerEnding(get))
	}
}

// trailerEnding returns the ending in a trailer of a server with a suite, or nil.
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

// over ends the stream with what err, from Recv, says: nil and io.EOF mean that it is complete.
func (c *clientCall) over(err error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	trailer := c.trailer
	c.mu.Unlock()
	if c.unwatch != nil {
		c.unwatch()
	}
	c.stream.End(c.ending(err, trailer))
	if err != nil && !errors.Is(err, io.EOF) {
		c.above.Below(err, c.stream.Ending())
	}
}

// ending returns how a stream ended that gave its reader err, and notes the reset or trailer that came with it.
func (c *clientCall) ending(err error, trailer func(key string) string) *streamerr.Error {
	done := err == nil || errors.Is(err, io.EOF)
	e := trailerEnding(trailer)
	if trailer == nil && (done || answered(err)) { // an empty trailer of TTHeader Streaming
		c.stream.Note(streamtrace.RecvTrailer, "", nil)
		trailer = func(string) string { return "" }
	}
	switch {
	case e != nil:
		if !done {
			e.Message, e.Cause = classify(err).Text(), err
		}
	case done:
		e = telemetry.Completed()
	case errors.Is(err, errDropped):
		return errDropped // no event: the callee is told nothing
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

// answered reports whether err is an exception or a status that came in a trailer of TTHeader Streaming.
func answered(err error) bool {
	ex, ok := errors.AsType[*ttstream.Exception](err)
	return ok && ex.TypeId() == ttApplication
}

// canceled ends a stream whose context is done. Kitex itself notices that only in Recv, or by a ticker.
func (c *clientCall) canceled() {
	c.mu.Lock()
	trailer := c.trailer
	c.mu.Unlock()
	if trailer != nil { // it was over before
		c.over(io.EOF)
		return
	}
	c.over(c.why())
}

var errDropped = streamerr.New(streamerr.PeerReset, "the caller dropped the stream without reading its end")

// dropped ends a stream whose reader was garbage-collected.
func (c *clientCall) dropped() {
	c.mu.Lock()
	trailer, err := c.trailer, c.sendErr
	c.mu.Unlock()
	switch {
	case trailer != nil:
		c.over(io.EOF)
	case err != nil:
		c.over(err)
	default:
		c.over(errDropped)
	}
}

func (c *clientCall) sent(err error) {
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
	if err != nil || c.ri.Invocation().StreamingMode() == serviceinfo.StreamingClient { // which has one response
		c.over(err)
	}
}
