package ttrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bytedance/gopkg/cloud/metainfo"
	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/remote/trans/ttstream"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/pkg/transmeta"
	"github.com/cloudwego/kitex/transport"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxReceived bounds a received message, in bytes. Kitex has allocated the message before the
// check.
const maxReceived = 32 << 20

// ConnectTimeout bounds the attempt of a Kitex client to connect. Kitex's default, 50 ms, takes a callee that
// is busy for a moment for a lost one.
const ConnectTimeout = time.Second

// idleConnection is how long a connection without a stream stays open.
const idleConnection = time.Minute

// A ClientConn calls the services of one address over TTHeader Streaming, and their unary methods
// over TTHeader. Stubs generated for grpc-go accept it. Each stream has a connection of its own
// while it runs, because on a shared connection a stream whose peer does not read blocks the other
// streams.
type ClientConn struct {
	clients map[string]client.Client // by full service name
}

var _ grpc.ClientConnInterface = (*ClientConn)(nil)

// Dial returns a connection to the services described by descs at target, a host:port. self is the
// name of the calling hop, which the callee finds in the ttscp of a canceled stream. Dial connects
// at the first call. Keep a reference to the result as long as its streams run.
func Dial(self, target string, descs ...*grpc.ServiceDesc) (*ClientConn, error) {
	c := &ClientConn{clients: make(map[string]client.Client, len(descs))}
	for _, desc := range descs {
		kc, err := client.NewClient(clientInfo(desc),
			client.WithDestService(desc.ServiceName),
			Direct(target),
			client.WithConnectTimeout(ConnectTimeout),
			client.WithClientBasicInfo(&rpcinfo.EndpointBasicInfo{ServiceName: self}),
			client.WithTransportProtocol(transport.TTHeader|transport.TTHeaderStreaming),
			client.WithMetaHandler(transmeta.ClientTTHeaderHandler),
			client.WithTTHeaderStreamingOptions(client.WithTTHeaderStreamingTransportOptions(
				ttstream.WithClientLongConnPool(ttstream.LongConnConfig{MaxIdleTimeout: idleConnection}), // short connections are closed before a reset is sent
				ttstream.WithClientHeaderFrameHandler(headerWriter{}),
			)),
		)
		if err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("kitex client for %s at %s: %w", desc.ServiceName, target, err)
		}
		c.clients[desc.ServiceName] = kc
	}
	return c, nil
}

func clientInfo(desc *grpc.ServiceDesc) *serviceinfo.ServiceInfo {
	info := &serviceinfo.ServiceInfo{
		ServiceName:  desc.ServiceName[strings.LastIndexByte(desc.ServiceName, '.')+1:],
		HandlerType:  (*any)(nil),
		Methods:      make(map[string]serviceinfo.MethodInfo),
		PayloadCodec: serviceinfo.Thrift,
	}
	args, answer := func() any { return new(Args) }, func() any { return new(Args) }
	for _, m := range desc.Methods {
		info.Methods[m.MethodName] = serviceinfo.NewMethodInfo(nil, args, answer, false)
	}
	for _, m := range desc.Streams {
		info.Methods[m.StreamName] = serviceinfo.NewMethodInfo(nil, args, answer, false, serviceinfo.WithStreamingMode(serviceinfo.StreamingBidirectional))
	}
	return info
}

// Close closes the clients. Their streams must have ended. Kitex keeps idle connections for a
// minute, and for each service one goroutine that closes them.
func (c *ClientConn) Close() error {
	var errs []error
	for _, kc := range c.clients {
		if closer, ok := kc.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}

// find returns the client for "/package.Service/Method", and the method's name.
func (c *ClientConn) find(method string) (client.Client, string, error) {
	service, name, ok := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	kc, known := c.clients[service]
	if !ok || !known {
		return nil, "", status.Errorf(codes.Unimplemented, "no client for %s", method)
	}
	return kc, name, nil
}

// Invoke implements grpc.ClientConnInterface. It ignores call options.
func (c *ClientConn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	kc, name, err := c.find(method)
	if err != nil {
		return err
	}
	out, err := encodeField(argField, args)
	if err != nil {
		return err
	}
	var pairs []string
	for key, value := range outgoing(ctx) {
		pairs = append(pairs, key, value)
	}
	var answer Args
	if err := kc.Call(metainfo.WithValues(ctx, pairs...), name, out, &answer); err != nil {
		return fromUnary(err)
	}
	return decodeField(answer.b, resultField, reply)
}

// fromUnary converts the error of a unary call to a gRPC status.
func fromUnary(err error) error {
	biz, ok := kerrors.FromBizStatusError(err)
	if !ok {
		return fromKitex(err)
	}
	extra := biz.BizExtra()
	e := &streamerr.Error{
		Reason: streamerr.ParseReason(extra[extraReason]), Path: streamerr.ParsePath(extra[extraPath]),
		Message: biz.BizMessage(), Param: extra[extraParam], Code: extra[extraCode],
	}
	if e.Reason == streamerr.Unspecified {
		return status.Errorf(codes.Unknown, "biz error %d: %s", biz.BizStatusCode(), biz.BizMessage())
	}
	if ms, err := strconv.ParseInt(extra[extraRetryMS], 10, 64); err == nil && ms >= 0 && ms <= maxTimeoutInMS {
		e.RetryAfter = time.Duration(ms) * time.Millisecond
	}
	return e.GRPCStatus().Err()
}

// outgoing returns the headers of a call.
func outgoing(ctx context.Context) map[string]string {
	md, _ := metadata.FromOutgoingContext(ctx)
	headers := single(md)
	if at, ok := ctx.Deadline(); ok {
		headers[timeoutHeader] = strconv.FormatInt(max(0, time.Until(at).Milliseconds()), 10)
	}
	return headers
}

// headerWriter sends the headers of a call with its first frame.
type headerWriter struct{}

// OnWriteStream implements ttstream.HeaderFrameWriteHandler.
func (headerWriter) OnWriteStream(ctx context.Context) (ttstream.IntHeader, ttstream.StrHeader, error) {
	return nil, outgoing(ctx), nil
}

// NewStream implements grpc.ClientConnInterface. It ignores call options. When ctx is canceled, the
// callee receives the cause.
func (c *ClientConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	kc, name, err := c.find(method)
	if err != nil {
		return nil, err
	}
	opener, ok := kc.(client.Streaming)
	if !ok {
		return nil, status.Error(codes.Internal, "this Kitex client has no streams")
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fromKitex(err)
	}
	callers := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	ctx = WithCause(ctx)
	st, err := opener.StreamX(ctx, name)
	if err != nil {
		defer cancel(nil)
		if Canceled(err) == nil && ctx.Err() == nil { // Kitex does not say that it could not connect
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		return nil, fromKitex(err)
	}
	s := &clientStream{ctx: ctx, cancel: cancel, st: st, header: sync.OnceValues(st.Header), trailer: sync.OnceValues(st.Trailer)}
	s.end = NewAbandon(callers, s.drop)
	return s, nil
}

// A clientStream is grpc-go's view of a stream on a Kitex client.
type clientStream struct {
	ctx    context.Context //nolint:containedctx // the call's
	cancel context.CancelCauseFunc
	st     streaming.ClientStream
	// Kitex returns these only once: a second call blocks forever.
	header  func() (streaming.Header, error)
	trailer func() (streaming.Trailer, error)

	end  *Abandon
	over bool // the stream has ended; owned by the receiver, or by end's hook
}

var _ grpc.ClientStream = (*clientStream)(nil)

func (s *clientStream) Context() context.Context { return s.ctx }
func (s *clientStream) CloseSend() error         { return fromKitex(s.st.CloseSend(s.ctx)) }

func (s *clientStream) SendMsg(m any) error {
	out, err := Encode(m)
	if err != nil {
		return err
	}
	if err := s.st.SendMsg(s.ctx, out); err != nil {
		return io.EOF // RecvMsg returns the reason
	}
	return nil
}

// RecvMsg implements grpc.ClientStream.
func (s *clientStream) RecvMsg(m any) error {
	return s.end.Receive(func() error { return s.receive(m) }, func(error) bool { return true })
}

func (s *clientStream) receive(m any) error {
	err := s.st.RecvMsg(s.ctx, incoming{m, maxReceived})
	if err == nil {
		return nil
	}
	if _, unreadable := status.FromError(err); unreadable {
		s.reset(err)
		return err
	}
	live := s.ctx.Err() == nil
	s.over = true
	s.cancel(nil)
	if st := fromTrailer(s.Trailer()); st != nil && live {
		return st.Err()
	}
	return fromKitex(err)
}

// reset resets a stream after a message that cannot be decoded. Kitex sends the reset when the
// stream is read, or some seconds later.
func (s *clientStream) reset(why error) {
	s.cancel(streamerr.New(streamerr.Internal, "a message could not be decoded: %s", status.Convert(why).Message()))
	for s.drop() == nil {
	}
}

// drop receives a message of a canceled stream, or returns why the stream has ended.
func (s *clientStream) drop() error {
	err := s.st.RecvMsg(s.ctx, incoming{nil, -1})
	if _, unreadable := status.FromError(err); err == nil || unreadable {
		return nil
	}
	s.over = true
	s.cancel(nil)
	return fromKitex(err)
}

// Header implements grpc.ClientStream.
func (s *clientStream) Header() (metadata.MD, error) {
	header, err := s.header()
	return metadata.New(maps.Clone(header)), fromKitex(err)
}

// Trailer implements grpc.ClientStream.
func (s *clientStream) Trailer() metadata.MD {
	if !s.over { // Kitex would wait for it
		return nil
	}
	trailer, _ := s.trailer() // an error means that there is no trailer
	return metadata.New(trailer)
}
