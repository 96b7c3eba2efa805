// Package kitexrpc provides grpc-go's types for Kitex: a Kitex server serves services written for
// grpc-go, and stubs generated for grpc-go call through a Kitex client, so that one implementation,
// one set of messages and package rpc serve both.
//
// On the same port, callers with the Thrift twins of the protos can call the services: streams over
// TTHeader Streaming (package ttrpc) and over gRPC, unary methods over TTHeader and over gRPC. With
// TLS, the server takes only gRPC.
//
// The package also closes gaps of Kitex's gRPC: statuses and their details cross unchanged, unknown
// methods are UNIMPLEMENTED, received messages are bounded, responses are not compressed without
// the caller's wish, and a message of another package does not reach a service by its short name.
package kitexrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	kgrpc "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/internal/pollnet"
	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/guard/flood"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
)

// A peer that vanishes silently is noticed after ping and timeout; Kitex's own default for servers
// is two hours. Clients ping less often, because other servers may end connections with too many
// pings.
const (
	serverPing  = 10 * time.Second
	clientPing  = 20 * time.Second
	pingTimeout = 5 * time.Second
)

// DefaultMaxRecvBytes bounds a received message, in bytes. It is also grpc-go's default.
const DefaultMaxRecvBytes = 4 << 20

// DefaultWriteTimeout is the default of Server.WriteTimeout.
const DefaultWriteTimeout = 20 * time.Second

// A Server is a Kitex server that registers services as grpc-go's does: first call RegisterService,
// then Serve, once.
type Server struct {
	// MaxRecvBytes bounds a received message; 0 means DefaultMaxRecvBytes.
	MaxRecvBytes int
	// WriteTimeout is the longest time for a write to a connection with TTHeader Streaming, which
	// has no flow control. After that the connection's streams end with SLOW_READER. 0 means
	// DefaultWriteTimeout.
	WriteTimeout time.Duration
	// TLS has the server's certificate, and the authorities of clients if clients must present a
	// certificate. If nil, the server does not use TLS.
	TLS *tls.Config
	// Refused is called with the address of a caller whose TLS handshake failed; nil for none.
	Refused func(caller net.Addr, err error)
	// MaxStreams is the number of open streams from which on a connection is closed; 0 means no bound. A stream is open until its end is written, which may be long after its handler
	// has returned.
	MaxStreams uint32
	// Flooded is called with the address of a caller whose connection was closed because of
	// MaxStreams or a flood of frames; nil for none.
	Flooded flood.Report

	services map[string]service // by short name, which Kitex routes by
	err      error              // of the first registration that failed
	exit     chan error         // closed by Stop
	ready    chan struct{}      // closed once Serve answers calls, or has failed
}

type service struct {
	desc *grpc.ServiceDesc
	impl any
}

// NewServer returns a server without services.
func NewServer() *Server {
	return &Server{services: make(map[string]service), exit: make(chan error), ready: make(chan struct{})}
}

// RegisterService implements grpc.ServiceRegistrar. Kitex routes by the last part of a service's
// name, which must therefore be unique; otherwise Serve returns an error.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	_, short := splitName(desc.ServiceName)
	if old, dup := s.services[short]; dup && s.err == nil {
		s.err = fmt.Errorf("kitexrpc: services %s and %s share the name %s", old.desc.ServiceName, desc.ServiceName, short)
	}
	s.services[short] = service{desc, impl}
}

// GetServiceInfo implements reflection.ServiceInfoProvider.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo {
	infos := make(map[string]grpc.ServiceInfo, len(s.services))
	for _, svc := range s.services {
		info := grpc.ServiceInfo{Metadata: svc.desc.Metadata}
		for _, m := range svc.desc.Methods {
			info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.MethodName})
		}
		for _, m := range svc.desc.Streams {
			info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.StreamName, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams})
		}
		infos[svc.desc.ServiceName] = info
	}
	return infos
}

// exitWait is how long Stop waits for calls. It is short, because streams are drained before Stop.
const exitWait = time.Second

// Serve accepts connections until Stop is called or the listener fails. Then it closes ln.
func (s *Server) Serve(ln net.Listener) error {
	defer ln.Close() //nolint:errcheck // Kitex closes a listener that is not pollnet's
	up, cancel := context.WithCancel(context.Background())
	var probe sync.WaitGroup
	probe.Go(func() {
		defer close(s.ready)
		if s.TLS != nil {
			<-up.Done() // until the server accepts connections
			return
		}
		awaitSettings(up, ln.Addr())
	})
	defer probe.Wait()
	defer cancel()
	if s.err != nil {
		return s.err
	}
	limit := s.MaxRecvBytes
	if limit == 0 {
		limit = DefaultMaxRecvBytes
	}
	infos := make([]*serviceinfo.ServiceInfo, 0, len(s.services))
	for _, svc := range s.services {
		infos = append(infos, serverInfo(svc, limit))
	}
	transport, err := s.transport(ln, infos, limit, cancel)
	if err != nil {
		return err
	}
	svr := server.NewServer(append(transport,
		server.WithExitSignal(func() <-chan error { return s.exit }), // main handles signals
		server.WithExitWaitTime(exitWait),
		server.WithRefuseTrafficWithoutServiceName(), // services may share method names
		server.WithGRPCUnknownServiceHandler(unknown),
		server.WithGRPCMaxHeaderListSize(guard.MaxHeaderBytes),
		server.WithGRPCMaxConcurrentStreams(s.MaxStreams), // tells callers
		server.WithGRPCKeepaliveParams(kgrpc.ServerKeepalive{Time: serverPing, Timeout: pingTimeout}),
		server.WithGRPCKeepaliveEnforcementPolicy(kgrpc.EnforcementPolicy{MinTime: pingTimeout / 2, PermitWithoutStream: true}),
	)...)
	for _, info := range infos {
		// Kitex panics on a nil handler, but does not use the handler otherwise: the methods below
		// have the real handler.
		if err := svr.RegisterService(info, &struct{}{}); err != nil {
			return err
		}
	}
	err = svr.Run()
	select {
	case <-s.exit: //nolint:errcheck // closed, and nothing is sent
		if errors.Is(err, context.DeadlineExceeded) {
			return nil // the calls that still ran were cut, as Stop documents
		}
	default:
	}
	return err
}

// transport returns the options of a server on ln, with or without TLS. A server with TLS calls up
// when it accepts connections.
func (s *Server) transport(ln net.Listener, infos []*serviceinfo.ServiceInfo, limit int, up func()) ([]server.Option, error) {
	if s.TLS != nil {
		return append(s.overTLS(up), server.WithListener(ln)), nil
	}
	polled, err := pollnet.Listener(ln)
	return append(s.overThrift(infos, limit), server.WithListener(polled)), err
}

// Stop ends Serve. It cuts calls that still run, so drain the streams before Stop.
func (s *Server) Stop() {
	<-s.ready // a Kitex server that is stopped while it starts keeps running
	close(s.exit)
}

// Ready returns a channel that is closed once Serve answers calls, or has failed.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// awaitSettings returns when an HTTP/2 server answers at addr, or when ctx is done.
func awaitSettings(ctx context.Context, addr net.Addr) {
	const (
		preface  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
		settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // an empty SETTINGS frame
	)
	conn, err := (&net.Dialer{}).DialContext(ctx, addr.Network(), addr.String())
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close() //nolint:errcheck // no written data can be lost
	if _, err := io.WriteString(conn, preface+settings); err != nil {
		return
	}
	_, _ = io.ReadFull(conn, make([]byte, len(settings)))
}

func splitName(full string) (pkg, short string) {
	if i := strings.LastIndexByte(full, '.'); i >= 0 {
		return full[:i], full[i+1:]
	}
	return "", full
}

// serverInfo describes a service to Kitex. All methods are bidi to Kitex, which is the same on the
// wire: Kitex's unary path would wrap messages and errors in types of its own.
func serverInfo(svc service, limit int) *serviceinfo.ServiceInfo {
	info := newInfo(svc.desc)
	for _, m := range svc.desc.Methods {
		info.Methods[m.MethodName] = bidi(svc.handler(limit, true, delivery.Unary(m)))
	}
	for _, m := range svc.desc.Streams { // with package guard, unary methods are among them
		info.Methods[m.StreamName] = bidi(svc.handler(limit, !m.ServerStreams && !m.ClientStreams, m.Handler))
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

func (svc service) handler(limit int, unary bool, h grpc.StreamHandler) serviceinfo.MethodHandler {
	pkg, short := splitName(svc.desc.ServiceName)
	return func(ctx context.Context, _, arg, result any) error {
		ri := rpcinfo.GetRPCInfo(ctx)
		called := ri.Invocation()
		method := svc.desc.ServiceName + "/" + called.MethodName()
		handle := func(st grpc.ServerStream) error { return h(svc.impl, st) }
		switch arg := arg.(type) {
		case *ttrpc.Args:
			return svc.overTTHeader(ctx, unary, arg, result, method, handle)
		case *streaming.Args:
			if arg.Stream == nil {
				return ttrpc.Serve(ctx, arg.ServerStream, method, limit, handle)
			}
		}
		thrift := ri.Config().PayloadCodec() == serviceinfo.Thrift // callers over Thrift name another package, or none
		if called.PackageName() != pkg && !thrift {
			return answer(ctx, status.Errorf(codes.Unimplemented, "unknown service %s.%s", called.PackageName(), short))
		}
		st, err := newServerStream(ctx, arg, method, limit)
		if err != nil {
			return err
		}
		st.codec = codecOf(thrift, unary)
		return answer(ctx, handle(st))
	}
}

// overTTHeader answers a call over TTHeader.
func (svc service) overTTHeader(ctx context.Context, unary bool, args *ttrpc.Args, result any, method string, handle func(grpc.ServerStream) error) error {
	if !unary {
		return answer(ctx, status.Errorf(codes.Unimplemented, "%s is a stream: call it over TTHeader Streaming", method))
	}
	out, ok := result.(*ttrpc.Result)
	if !ok {
		return fmt.Errorf("kitexrpc: the result of %s is a %T", method, result)
	}
	return ttrpc.ServeUnary(ctx, args, out, method, handle)
}

// unknown answers calls of services and methods that are not registered.
func unknown(ctx context.Context, method string, _ streaming.Stream) error {
	called := rpcinfo.GetRPCInfo(ctx).Invocation()
	return answer(ctx, status.Errorf(codes.Unimplemented, "unknown method %s of service %s", method, called.ServiceName()))
}

// answer returns a handler's error to Kitex in the only form that Kitex sends unchanged and does
// not log.
func answer(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	setter, ok := rpcinfo.GetRPCInfo(ctx).Invocation().(rpcinfo.InvocationSetter)
	if !ok {
		return errors.New("kitexrpc: this Kitex cannot carry a status")
	}
	setter.SetBizStatusErr(toKitex(err))
	return nil
}
