package kitexrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/kitex/pkg/remote/codec"
	"github.com/cloudwego/kitex/pkg/remote/trans/detection"
	knetpoll "github.com/cloudwego/kitex/pkg/remote/trans/netpoll"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/pkg/transmeta"
	"github.com/cloudwego/kitex/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/internal/pollnet"
	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/grpcserver"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
)

// A thriftServer is the Kitex server of the connections that are not gRPC.
type thriftServer struct {
	queue  *pollnet.Queue
	exit   chan error
	served chan error

	stopping sync.Once
}

// twins returns the services that have Thrift twins: all but grpc-go's own.
func (s *Server) twins() (all []service) {
	for name, svc := range s.services {
		if !strings.HasPrefix(name, "grpc.") {
			all = append(all, svc)
		}
	}
	return all
}

// serveThrift starts the Kitex server of a port with the address at. It returns nil if the port
// serves only gRPC.
func (s *Server) serveThrift(at net.Addr, limit int) (*thriftServer, error) {
	var infos []*serviceinfo.ServiceInfo
	named := map[string]string{}
	for _, svc := range s.twins() {
		info := thriftInfo(svc, limit)
		if other, dup := named[info.ServiceName]; dup {
			return nil, fmt.Errorf("kitexrpc: services %s and %s share the name %s", other, svc.desc.ServiceName, info.ServiceName)
		}
		named[info.ServiceName] = svc.desc.ServiceName
		infos = append(infos, info)
	}
	if len(infos) == 0 || grpcserver.Secure(s.Creds) {
		return nil, nil //nolint:nilnil // see above
	}
	queue, err := pollnet.NewQueue(at)
	if err != nil {
		return nil, err
	}
	t := &thriftServer{queue: queue, exit: make(chan error), served: make(chan error, 1)}
	svr := server.NewServer(append(s.thriftOptions(infos, limit),
		server.WithListener(queue),
		server.WithExitSignal(func() <-chan error { return t.exit }), // main handles signals
		server.WithExitWaitTime(exitWait),
		server.WithRefuseTrafficWithoutServiceName(), // services may share method names
	)...)
	for _, info := range infos {
		// Kitex panics on a nil handler, but does not use the handler otherwise: the methods have the
		// real handler.
		if err := svr.RegisterService(info, &struct{}{}); err != nil {
			queue.Release()
			return nil, err
		}
	}
	go func() { t.served <- svr.Run() }()
	select {
	case <-queue.Ready(): // a Kitex server that is stopped while it starts keeps running
		return t, nil
	case err := <-t.served:
		queue.Release()
		return nil, fmt.Errorf("kitex: %w", err)
	}
}

// foreign returns the function that gives a connection to t, or nil if there is no t.
func (t *thriftServer) foreign() func(net.Conn) {
	if t == nil {
		return nil
	}
	return func(nc net.Conn) { _ = t.queue.Hand(nc) } // fails only while the server stops, and closes nc then
}

// stop ends the server, if there is one. It cuts calls that still run after exitWait.
func (t *thriftServer) stop() {
	if t == nil {
		return
	}
	t.stopping.Do(func() {
		close(t.exit)
		<-t.served //nolint:errcheck // an error means that calls were cut
		t.queue.Release()
	})
}

// thriftOptions returns the options of a Kitex server for TTHeader and TTHeader Streaming.
func (s *Server) thriftOptions(infos []*serviceinfo.ServiceInfo, limit int) []server.Option {
	patience := s.WriteTimeout
	if patience == 0 {
		patience = DefaultWriteTimeout
	}
	return []server.Option{
		server.WithCodec(newBoundedCodec(limit)), // of TTHeader
		server.WithMetaHandler(transmeta.ServerTTHeaderHandler),
		server.WithErrorHandler(ttrpc.ErrorHandler),
		server.WithTransHandlerFactory(detection.NewSvrTransHandlerFactory(
			knetpoll.NewSvrTransHandlerFactory(),
			ttrpc.Handlers{Limit: limit, WriteTimeout: patience, MaxStreams: s.MaxStreams, Flooded: s.Flooded, Service: infos[0], Fallback: bidi(unknownMethod)},
		)),
	}
}

// thriftInfo describes a service to Kitex. All methods are bidi to Kitex, whose own unary path would
// wrap messages and errors in types of its own.
func thriftInfo(svc service, limit int) *serviceinfo.ServiceInfo {
	info := newInfo(svc.desc)
	for _, m := range svc.desc.Methods {
		info.Methods[m.MethodName] = bidi(svc.overThrift(limit, true, delivery.Unary(m)))
	}
	for _, m := range svc.desc.Streams {
		info.Methods[m.StreamName] = bidi(svc.overThrift(limit, unary(m), m.Handler))
	}
	return info
}

func newInfo(desc *grpc.ServiceDesc) *serviceinfo.ServiceInfo {
	pkg, short := splitName(desc.ServiceName)
	return &serviceinfo.ServiceInfo{
		ServiceName:  short,
		HandlerType:  (*any)(nil),
		Methods:      make(map[string]serviceinfo.MethodInfo),
		PayloadCodec: serviceinfo.Protobuf,
		Extra:        map[string]any{serviceinfo.PackageName: pkg},
	}
}

func bidi(h serviceinfo.MethodHandler) serviceinfo.MethodInfo {
	args, result := func() any { return new(ttrpc.Args) }, func() any { return new(ttrpc.Result) } // of calls over TTHeader
	return serviceinfo.NewMethodInfo(h, args, result, false, serviceinfo.WithStreamingMode(serviceinfo.StreamingBidirectional))
}

// overThrift returns the handler of a method for calls over TTHeader and TTHeader Streaming.
func (svc service) overThrift(limit int, unary bool, h grpc.StreamHandler) serviceinfo.MethodHandler {
	return func(ctx context.Context, _, arg, result any) error {
		method := svc.desc.ServiceName + "/" + rpcinfo.GetRPCInfo(ctx).Invocation().MethodName()
		handle := func(st grpc.ServerStream) error { return h(svc.impl, st) }
		switch arg := arg.(type) {
		case *ttrpc.Args:
			return overTTHeader(ctx, unary, arg, result, method, handle)
		case *streaming.Args:
			return ttrpc.Serve(ctx, arg.ServerStream, method, limit, handle)
		default:
			return fmt.Errorf("kitexrpc: the argument of %s is a %T", method, arg)
		}
	}
}

// overTTHeader answers a call over TTHeader.
func overTTHeader(ctx context.Context, unary bool, args *ttrpc.Args, result any, method string, handle func(grpc.ServerStream) error) error {
	if !unary {
		return refuse(ctx, status.Errorf(codes.Unimplemented, "%s is a stream: call it over TTHeader Streaming", method))
	}
	out, ok := result.(*ttrpc.Result)
	if !ok {
		return fmt.Errorf("kitexrpc: the result of %s is a %T", method, result)
	}
	return ttrpc.ServeUnary(ctx, args, out, method, handle)
}

// refuse returns an error to Kitex in the only form that Kitex sends unchanged and does not log.
func refuse(ctx context.Context, err error) error {
	setter, ok := rpcinfo.GetRPCInfo(ctx).Invocation().(rpcinfo.InvocationSetter)
	if !ok {
		return errors.New("kitexrpc: this Kitex cannot carry a status")
	}
	setter.SetBizStatusErr(toKitex(err))
	return nil
}

// A boundedCodec bounds only received messages. Kitex's own limit bounds sent messages, too.
type boundedCodec struct {
	remote.Codec
	limited remote.Codec
}

func newBoundedCodec(limit int) remote.Codec {
	return boundedCodec{codec.NewDefaultCodec(), codec.NewDefaultCodecWithSizeLimit(limit)}
}

// Decode implements remote.Codec.
func (c boundedCodec) Decode(ctx context.Context, m remote.Message, in remote.ByteBuffer) error {
	return c.limited.Decode(ctx, m, in)
}

// unknownMethod answers calls of unknown methods over TTHeader Streaming.
func unknownMethod(ctx context.Context, _, arg, _ any) error {
	args, ok := arg.(*streaming.Args)
	if !ok {
		return fmt.Errorf("kitexrpc: %T is not a call over TTHeader Streaming", arg)
	}
	method := rpcinfo.GetRPCInfo(ctx).Invocation().MethodName()
	return ttrpc.Serve(ctx, args.ServerStream, method, 0, func(grpc.ServerStream) error {
		return status.Errorf(codes.Unimplemented, "unknown method %s, or an unknown service", method)
	})
}
