// Package ttrpc carries services with protobuf messages over Kitex's TTHeader Streaming, for
// callers and callees whose code was generated from the Thrift twins of the protos. Package
// thriftwire encodes the messages. Package kitexrpc uses ttrpc to serve on the port of its gRPC
// services; Dial is the caller's end.
//
// TTHeader Streaming has no flow control, and its frames carry no statuses. So this package
//
//   - ends a failed stream with an exception whose code is CodeBase plus the reason, whose text has
//     reason, message and path, and whose trailers have the same for programs: as a
//     BizStatusErrorIface of Kitex, and as a gRPC status;
//   - makes the cancel of a caller, with its cause and its path (ttscp), the reason and the path of
//     the stream's ending;
//   - answers calls of unknown methods, which Kitex does not answer;
//   - bounds received frames, and closes a connection whose peer does not read.
package ttrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/bytedance/gopkg/cloud/metainfo"
	"github.com/cloudwego/gopkg/protocol/thrift"
	"github.com/cloudwego/kitex/pkg/klog"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/thriftwire"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Serve runs the handler of a method for a call over TTHeader Streaming. method is
// "package.Service/Method"; limit bounds a received message, in bytes. The server must pass Serve's
// error to ErrorHandler.
func Serve(ctx context.Context, st streaming.ServerStream, method string, limit int, handle func(grpc.ServerStream) error) error {
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	s := &serverStream{call: ctx, st: st, limit: limit, sending: make(chan struct{}, 1)}
	s.ctx = grpc.NewContextWithServerTransportStream(withPeer(ctx), transportStream{s, "/" + method})
	err := guarded(ctx, method, s, handle)
	s.end()
	if err == nil {
		return nil
	}
	ex, trailer := exception(err)
	if err := st.SetTrailer(trailer); err != nil {
		return err
	}
	return ex
}

// guarded calls a handler. It turns a panic into an INTERNAL error and logs the stack to Kitex's
// log. Kitex itself would send the text of the panic to the caller.
func guarded(ctx context.Context, method string, s grpc.ServerStream, handle func(grpc.ServerStream) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			klog.CtxErrorf(ctx, "panic in the handler of %s: %v\nstack=%s", method, v, debug.Stack())
			err = streamerr.New(streamerr.Internal, "a bug in the handler of %s; the log of its service has the details", method).GRPCStatus().Err()
		}
	}()
	return handle(s)
}

// ErrorHandler is the error handler of a Kitex server whose handlers return the error of Serve.
// Without it, Kitex adds text of its own to the errors of handlers.
func ErrorHandler(_ context.Context, err error) error {
	if ex, ok := errors.AsType[*thrift.ApplicationException](err); ok {
		return ex
	}
	return err
}

// withTimeout gives the call the deadline of its caller, if the caller has sent one.
func withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	for _, value := range metadata.ValueFromIncomingContext(ctx, timeoutHeader) {
		if ms, err := strconv.ParseInt(value, 10, 64); err == nil && ms >= 0 && ms <= maxTimeoutInMS {
			return context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		}
	}
	return ctx, func() {}
}

// withPeer adds the caller's address to ctx.
func withPeer(ctx context.Context) context.Context {
	if addr := peerOf(ctx); addr != nil {
		return peer.NewContext(ctx, &peer.Peer{Addr: callAddr{addr, ctx}})
	}
	return ctx
}

// peerOf returns the address of a call's caller, or nil.
func peerOf(ctx context.Context) net.Addr {
	ri := rpcinfo.GetRPCInfo(ctx)
	if ri == nil || ri.From() == nil {
		return nil
	}
	return ri.From().Address()
}

// A callAddr is a caller's address that knows why the caller has ended the call.
type callAddr struct {
	net.Addr
	call context.Context //nolint:containedctx // its error is the reason
}

var _ connloss.Explainer = callAddr{}

// Why implements connloss.Explainer.
func (a callAddr) Why() *streamerr.Error { return Canceled(a.call.Err()) }

// Lost implements connloss.Addr.
func (a callAddr) Lost() bool {
	why := a.Why()
	return why != nil && why.Reason == streamerr.PeerLost
}

// incomingContext returns ctx with the headers of a call as gRPC metadata. Kitex's callers send
// headers as metainfo.
func incomingContext(ctx context.Context, headers map[string]string) context.Context {
	md := make(metadata.MD, len(headers))
	for key, value := range headers {
		key = strings.TrimPrefix(strings.TrimPrefix(key, metainfo.PrefixTransient), metainfo.PrefixPersistent)
		md.Set(key, value)
	}
	return metadata.NewIncomingContext(ctx, md)
}

// A serverStream is grpc-go's view of a call over TTHeader Streaming.
type serverStream struct {
	call, ctx context.Context //nolint:containedctx // Kitex's context, and the handlers' context
	st        streaming.ServerStream
	limit     int

	sending chan struct{} // capacity 1: full while a message is being sent
	over    bool          // the handler has returned. Guarded by sending
}

// lastSend is how long the end of a call waits for a message that is being sent.
const lastSend = time.Second

var errOver = status.Error(codes.Canceled, "the handler of the call has returned")

var _ grpc.ServerStream = (*serverStream)(nil)

func (s *serverStream) Context() context.Context        { return s.ctx }
func (s *serverStream) SetHeader(md metadata.MD) error  { return s.st.SetHeader(single(md)) }
func (s *serverStream) SendHeader(md metadata.MD) error { return s.st.SendHeader(single(md)) }
func (s *serverStream) SetTrailer(md metadata.MD)       { _ = s.st.SetTrailer(single(md)) } // fails only after the handler has returned
func (s *serverStream) RecvMsg(m any) error {
	return fromKitex(s.st.RecvMsg(s.call, incoming{m, s.limit}))
}

func (s *serverStream) SendMsg(m any) error {
	out, err := Encode(m)
	if err != nil {
		return err
	}
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	if s.over {
		return errOver
	}
	return fromKitex(s.st.SendMsg(s.call, out))
}

// end waits until a message of another goroutine has been sent, and blocks further messages. Kitex
// ends the call without a lock, and might send the headers twice. A peer that does not read delays
// the end by at most lastSend.
func (s *serverStream) end() {
	late := time.NewTimer(lastSend)
	defer late.Stop()
	select {
	case s.sending <- struct{}{}:
		s.over = true
		<-s.sending
	case <-late.C:
	}
}

// single returns md with the first value of each key: TTHeader has one value per key.
func single(md metadata.MD) map[string]string {
	headers := make(map[string]string, len(md))
	for key, values := range md {
		if len(values) > 0 {
			headers[key] = values[0]
		}
	}
	return headers
}

// A transportStream lets grpc.SetTrailer and similar functions work inside handlers.
type transportStream struct {
	st     grpc.ServerStream
	method string
}

var _ grpc.ServerTransportStream = transportStream{}

func (t transportStream) Method() string                  { return t.method }
func (t transportStream) SetHeader(md metadata.MD) error  { return t.st.SetHeader(md) }
func (t transportStream) SendHeader(md metadata.MD) error { return t.st.SendHeader(md) }
func (t transportStream) SetTrailer(md metadata.MD) error {
	t.st.SetTrailer(md)
	return nil
}

// Args are the encoded arguments of a unary method that was called over TTHeader.
type Args struct{ encodedMessage }

// Result is the encoded result of a unary method.
type Result struct{ encodedMessage }

// ServeUnary runs the handler of a unary method for a call over TTHeader. It returns an error as a
// BizStatusErrorIface, which Kitex sends with code, message, reason and path.
func ServeUnary(ctx context.Context, args *Args, result *Result, method string, handle func(grpc.ServerStream) error) error {
	headers := metainfo.GetAllValues(ctx)
	maps.Copy(headers, metainfo.GetAllPersistentValues(ctx))
	ctx, cancel := withTimeout(incomingContext(ctx, headers))
	defer cancel()
	result.b = thriftwire.AppendStop(nil) // Kitex sends it together with an error
	s := &unaryStream{args: args, result: result}
	s.ctx = grpc.NewContextWithServerTransportStream(withPeer(ctx), transportStream{s, "/" + method})
	if err := guarded(ctx, method, s, handle); err != nil {
		return bizError(streamerr.FromGRPC("", toStatus(err).Err()))
	}
	if !s.answered {
		return bizError(streamerr.New(streamerr.Internal, "%s returned no answer", method))
	}
	return nil
}

// A unaryStream is grpc-go's view of a unary call. TTHeader's answers have no trailers.
type unaryStream struct {
	ctx    context.Context //nolint:containedctx // the call's
	args   *Args           // nil after the arguments were received
	result *Result

	answered bool
}

var _ grpc.ServerStream = (*unaryStream)(nil)

func (s *unaryStream) Context() context.Context     { return s.ctx }
func (s *unaryStream) SetHeader(metadata.MD) error  { return nil }
func (s *unaryStream) SendHeader(metadata.MD) error { return nil }
func (s *unaryStream) SetTrailer(metadata.MD)       {}

func (s *unaryStream) RecvMsg(m any) error {
	if s.args == nil {
		return io.EOF
	}
	raw := s.args.b
	s.args = nil
	return DecodeArgs(raw, m)
}

func (s *unaryStream) SendMsg(m any) error {
	out, err := encodeField(resultField, m)
	if err != nil {
		return err
	}
	s.result.encodedMessage, s.answered = *out, true
	return nil
}

func jsonOf(m map[string]string) string {
	b, _ := json.Marshal(m) // cannot fail
	return string(b)
}
