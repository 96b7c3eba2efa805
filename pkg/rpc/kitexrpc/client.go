package kitexrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cloudwego/kitex/client"
	knetpoll "github.com/cloudwego/kitex/pkg/remote/trans/netpoll"
	kgrpc "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc"
	kmetadata "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/metadata"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/transport"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
	"github.com/whence-dev/whence/pkg/rpc/unarycall"
)

// A connection whose peer vanishes silently is noticed after clientPing and pingTimeout. Servers of
// others may end connections with more pings.
const (
	clientPing  = 20 * time.Second
	pingTimeout = 5 * time.Second
)

// A ClientConn calls the services of one address through Kitex clients. Stubs generated for grpc-go
// accept it. All calls to a service share one connection, which costs the least CPU per message.
type ClientConn struct {
	clients map[string]client.Client // by full service name
}

var _ grpc.ClientConnInterface = (*ClientConn)(nil)

// Dial returns a connection to the services described by descs at target, a host:port. It connects
// at the first call, and again when the connection is lost. Keep a reference as long as its streams
// run: Kitex closes clients that are garbage-collected.
func Dial(target string, descs ...*grpc.ServiceDesc) (*ClientConn, error) {
	return dial(target, descs, client.WithDialer(dialer{knetpoll.NewDialer()}))
}

func dial(target string, descs []*grpc.ServiceDesc, options ...client.Option) (*ClientConn, error) {
	c := &ClientConn{clients: make(map[string]client.Client, len(descs))}
	for _, desc := range descs {
		info := newInfo(desc)
		for _, m := range desc.Methods {
			info.Methods[m.MethodName] = bidi(nil)
		}
		for _, m := range desc.Streams {
			info.Methods[m.StreamName] = bidi(nil)
		}
		kc, err := client.NewClient(info, append(slices.Clip(options),
			client.WithDestService(desc.ServiceName),
			ttrpc.Direct(target),
			client.WithConnectTimeout(ttrpc.ConnectTimeout),
			client.WithTransportProtocol(transport.GRPC),
			client.WithGRPCConnPoolSize(1),
			client.WithGRPCKeepaliveParams(kgrpc.ClientKeepalive{Time: clientPing, Timeout: pingTimeout}),
		)...)
		if err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("kitex client for %s at %s: %w", desc.ServiceName, target, err)
		}
		c.clients[desc.ServiceName] = kc
	}
	return c, nil
}

// Close closes the clients. Their streams must have ended.
func (c *ClientConn) Close() error {
	var errs []error
	for _, kc := range c.clients {
		if closer, ok := kc.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}

// Invoke implements grpc.ClientConnInterface. It supports the call options Header and Trailer only.
func (c *ClientConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return unarycall.Invoke(ctx, c, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface. It ignores call options.
func (c *ClientConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	service, name, ok := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	kc, known := c.clients[service].(client.Streaming)
	if !ok || !known {
		return nil, status.Errorf(codes.Unimplemented, "no client for %s", method)
	}
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		ctx = kmetadata.NewOutgoingContext(ctx, kmetadata.MD(md))
	}
	st, err := kc.StreamX(ctx, name)
	if err != nil {
		return nil, fromKitex(err)
	}
	getter, ok := st.(streaming.GRPCStreamGetter)
	if !ok || getter.GetGRPCStream() == nil {
		return nil, status.Errorf(codes.Internal, "%T is not a gRPC stream", st)
	}
	s := &clientStream{ctx: ctx, st: st, grpc: getter.GetGRPCStream()}
	s.end = ttrpc.NewAbandon(ctx, func() error { return st.RecvMsg(ctx, &emptypb.Empty{}) })
	return s, nil
}

// A clientStream is grpc-go's view of a stream on a Kitex client.
type clientStream struct {
	ctx  context.Context
	st   streaming.ClientStream
	grpc streaming.Stream // the same stream, for metadata with several values
	end  *ttrpc.Abandon
}

var _ grpc.ClientStream = (*clientStream)(nil)

func (s *clientStream) Context() context.Context { return s.ctx }
func (s *clientStream) CloseSend() error         { return fromKitex(s.st.CloseSend(s.ctx)) }
func (s *clientStream) SendMsg(m any) error      { return fromKitex(s.st.SendMsg(s.ctx, m)) }
func (s *clientStream) Trailer() metadata.MD     { return metadata.MD(s.grpc.Trailer()) }

// RecvMsg implements grpc.ClientStream.
func (s *clientStream) RecvMsg(m any) error {
	return fromKitex(s.end.Receive(func() error { return s.st.RecvMsg(s.ctx, m) }, s.ended))
}

// ended reports whether the stream is over after an error of RecvMsg: a message that cannot be decoded
// does not end it.
func (s *clientStream) ended(err error) bool {
	return errors.Is(err, io.EOF) || s.ctx.Err() != nil || hasStatus(err)
}

// Header implements grpc.ClientStream.
func (s *clientStream) Header() (metadata.MD, error) {
	md, err := s.grpc.Header()
	return metadata.MD(md), fromKitex(err)
}
