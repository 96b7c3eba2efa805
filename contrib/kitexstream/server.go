package kitexstream

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/bytedance/gopkg/cloud/metainfo"
	"github.com/cloudwego/kitex/pkg/endpoint/sep"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/metadata"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	kstreaming "github.com/cloudwego/kitex/pkg/streaming"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// middleware measures the streams of a server.
func (s serverSuite) middleware(next sep.StreamEndpoint) sep.StreamEndpoint {
	return func(base context.Context, st kstreaming.ServerStream) error {
		ri := rpcinfo.GetRPCInfo(base)
		if ri == nil || !streaming(ri) {
			return next(base, st)
		}
		via := streamerr.ParsePath(header(base, streamerr.ViaHeader))
		caller, limit := callerName(via, ri), newClock(base)
		stream := s.monitor.Begin(base, monitor.Call{
			Method: method(monitor.Server, ri), Peer: caller, Via: via,
			Parent:  monitor.ReadParent(func(key string) string { return header(base, key) }),
			Stopped: s.stopped(base, ri, caller, limit),
		})
		stream.Note(monitor.RecvHeader, "", &streamerr.Error{Path: via})
		call := &serverCall{stream: stream, ri: ri}
		defer context.AfterFunc(base, call.reset)()
		var err error = errPanicked // until next returns
		defer func() {
			e := call.ending(err)
			call.trailer(st, e)
			stream.End(e)
		}()
		err = next(monitor.With(withoutHeaders(base), stream), call.wrap(st))
		return err
	}
}

// stopped returns a function that returns why the context of a call ended, as of the first time that
// it is called after that, or nil while the context is live.
func (s serverSuite) stopped(base context.Context, ri rpcinfo.RPCInfo, caller string, limit clock) func() *streamerr.Error {
	var addr net.Addr
	if from := ri.From(); from != nil {
		addr = from.Address()
	}
	known := s.conns.has(addr)
	var (
		mu  sync.Mutex
		why *streamerr.Error
	)
	return func() *streamerr.Error {
		mu.Lock()
		defer mu.Unlock()
		if why == nil {
			why = stopped(base, caller, limit, s.draining.Load(), known && !s.conns.has(addr))
		}
		return why
	}
}

// withoutHeaders removes the suite's headers from the metainfo of a handler's context. Kitex would
// pass them on with each call that the handler makes with a client without a suite.
func withoutHeaders(ctx context.Context) context.Context {
	for _, name := range monitor.HeaderNames() {
		ctx = metainfo.DelValue(ctx, name) //nolint:fatcontext // a handful of names
	}
	return ctx
}

var errPanicked = &streamerr.Error{Reason: streamerr.Internal, Message: "a middleware panicked"}

// header returns a header of a call, from gRPC's metadata or from Kitex's metainfo.
func header(ctx context.Context, key string) string {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		if values := md.Get(key); len(values) > 0 {
			return values[0]
		}
	}
	value, _ := metainfo.GetValue(ctx, key)
	return value
}

// callerName returns the name of the hop that made a call.
func callerName(via streamerr.Path, ri rpcinfo.RPCInfo) string {
	if len(via) > 0 {
		return via[len(via)-1]
	}
	if from := ri.From(); from != nil && from.ServiceName() != "" {
		return from.ServiceName()
	}
	return monitor.UnnamedPeer
}

// A serverCall is one stream of a handler.
type serverCall struct {
	stream *monitor.Stream
	ri     rpcinfo.RPCInfo

	headed, halfClosed, gone sync.Once // each event is recorded once
}

// reset records that the handler's context ended before the handler returned.
func (c *serverCall) reset() {
	c.gone.Do(func() {
		why := c.stream.Stopped()
		if why == nil {
			return // the handler returned first
		}
		kind := monitor.RecvRst
		if why.Reason == streamerr.Draining && len(why.Path) == 1 {
			kind = monitor.SendRst // this server shuts down
		}
		c.stream.Note(kind, resetCode(why), why)
	})
}

// resetCode returns the form of a reset: with a cause, without a cause, or a lost connection.
func resetCode(why *streamerr.Error) string {
	switch why.Reason {
	case streamerr.PeerLost:
		return monitor.CodeLost
	case streamerr.PeerReset, streamerr.Deadline, streamerr.Draining:
		return monitor.CodeCancel
	default:
		return monitor.CodeStop
	}
}

// ending returns the ending of a stream whose handler returned err.
func (c *serverCall) ending(err error) *streamerr.Error {
	if why := c.stream.Stopped(); why != nil { // the handler's error is a consequence
		c.reset()
		return why
	}
	if err == nil {
		biz := c.ri.Invocation().BizStatusErr()
		if biz == nil {
			return monitor.Completed()
		}
		err = biz
	}
	code, biz := Answer(err)
	if biz {
		c.stream.Answered(code)
	}
	if e := c.stream.Known(err); e != nil {
		return e
	}
	if biz {
		return monitor.Completed()
	}
	return Classify("", err)
}

// trailer adds the ending to the trailer that Kitex sends when the handler has returned.
func (c *serverCall) trailer(st kstreaming.ServerStream, e *streamerr.Error) {
	if c.stream.Stopped() != nil {
		return // the caller reads no trailer
	}
	c.sentHeader()
	e = c.stream.Arrived(e)
	err := st.SetTrailer(kstreaming.Trailer{streamerr.ReasonTrailer: e.Reason.String(), streamerr.PathTrailer: e.Path.String()})
	if err == nil {
		c.stream.Note(monitor.SendTrailer, "", e)
	}
}

func (c *serverCall) sentHeader() {
	c.headed.Do(func() { c.stream.Note(monitor.SendHeader, "", nil) })
}

func (c *serverCall) sent(err error) {
	if err == nil {
		c.sentHeader()
		c.stream.Sent(int(c.ri.Stats().LastSendSize()))
	}
}

func (c *serverCall) received(err error) {
	switch {
	case err == nil:
		c.stream.Received(int(c.ri.Stats().LastRecvSize()))
	case errors.Is(err, io.EOF):
		c.halfClosed.Do(func() { c.stream.Note(monitor.RecvTrailer, "", nil) })
	}
}

// wrap returns a stream that records its messages and headers, in both of Kitex's interfaces.
func (c *serverCall) wrap(st kstreaming.ServerStream) kstreaming.ServerStream {
	s := &serverStream{ServerStream: st, call: c}
	if getter, ok := st.(kstreaming.GRPCStreamGetter); ok {
		s.grpc = getter.GetGRPCStream()
	}
	return s
}

// A serverStream is a stream of StreamX.
type serverStream struct {
	kstreaming.ServerStream
	grpc kstreaming.Stream // the stream in the older interface, or nil
	call *serverCall
}

var _ kstreaming.GRPCStreamGetter = (*serverStream)(nil)

// SendMsg implements streaming.ServerStream.
func (s *serverStream) SendMsg(ctx context.Context, m any) error {
	err := s.ServerStream.SendMsg(ctx, m)
	s.call.sent(err)
	return err
}

// RecvMsg implements streaming.ServerStream.
func (s *serverStream) RecvMsg(ctx context.Context, m any) error {
	err := s.ServerStream.RecvMsg(ctx, m)
	s.call.received(err)
	return err
}

// SendHeader implements streaming.ServerStream.
func (s *serverStream) SendHeader(h kstreaming.Header) error {
	err := s.ServerStream.SendHeader(h)
	if err == nil {
		s.call.sentHeader()
	}
	return err
}

// GetGRPCStream implements streaming.GRPCStreamGetter.
func (s *serverStream) GetGRPCStream() kstreaming.Stream {
	if s.grpc == nil {
		return nil
	}
	return grpcServerStream{s.grpc, s.call}
}

// A grpcServerStream is a stream of the interface before StreamX.
type grpcServerStream struct {
	kstreaming.Stream
	call *serverCall
}

// SendMsg implements streaming.Stream.
func (s grpcServerStream) SendMsg(m any) error {
	err := s.Stream.SendMsg(m)
	s.call.sent(err)
	return err
}

// RecvMsg implements streaming.Stream.
func (s grpcServerStream) RecvMsg(m any) error {
	err := s.Stream.RecvMsg(m)
	s.call.received(err)
	return err
}

// SendHeader implements streaming.Stream.
func (s grpcServerStream) SendHeader(md metadata.MD) error {
	err := s.Stream.SendHeader(md)
	if err == nil {
		s.call.sentHeader()
	}
	return err
}
