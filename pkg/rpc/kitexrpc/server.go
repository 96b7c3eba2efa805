// Package kitexrpc joins Kitex and services written for grpc-go: a Server answers callers over gRPC
// and over Kitex's protocols on one port, and stubs generated for grpc-go call through a Kitex client
// (Dial). So one implementation, one set of messages and package rpc serve both.
//
// On a Server's port, grpc-go serves gRPC, and Kitex serves TTHeader and TTHeader Streaming (package
// ttrpc) to callers with the Thrift twins of the protos. Their first byte tells the connections
// apart. Callers with the Thrift twins may also use gRPC. With TLS, the server takes only gRPC.
package kitexrpc

import (
	"cmp"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/whence-dev/whence/pkg/rpc/grpcserver"
	"github.com/whence-dev/whence/pkg/rpc/guard/flood"
)

// DefaultMaxRecvBytes bounds a received message, in bytes. It is also grpc-go's default.
const DefaultMaxRecvBytes = grpcserver.DefaultMaxRecvBytes

// DefaultWriteTimeout is the default of Server.WriteTimeout.
const DefaultWriteTimeout = 20 * time.Second

// A Server registers services as grpc-go's does: first call RegisterService, then Serve, once.
type Server struct {
	// MaxRecvBytes bounds a received message; 0 means DefaultMaxRecvBytes.
	MaxRecvBytes int
	// WriteTimeout is the longest time for a write to a connection with TTHeader Streaming, which
	// has no flow control. After that the connection's streams end with SLOW_READER. 0 means
	// DefaultWriteTimeout.
	WriteTimeout time.Duration
	// Creds authenticate callers over TLS; nil means plain TCP.
	Creds credentials.TransportCredentials
	// MaxStreams is the number of open streams from which on a connection is closed; 0 means no
	// bound. A stream is open until its end is written, which may be long after its handler has
	// returned.
	MaxStreams uint32
	// Flooded is called with the address of a caller whose connection was closed because of
	// MaxStreams or a flood of frames; nil for none.
	Flooded flood.Report

	services map[string]service // by full name
	exit     chan struct{}      // closed by Stop
	ready    chan struct{}      // closed once Serve answers calls, or has failed
}

type service struct {
	desc *grpc.ServiceDesc
	impl any
}

// NewServer returns a server without services.
func NewServer() *Server {
	return &Server{services: make(map[string]service), exit: make(chan struct{}), ready: make(chan struct{})}
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.services[desc.ServiceName] = service{desc, impl}
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
	defer ln.Close() //nolint:errcheck // grpc-go has closed it, unless it failed
	var announced sync.Once
	ready := func() { announced.Do(func() { close(s.ready) }) }
	defer ready()
	limit := cmp.Or(s.MaxRecvBytes, DefaultMaxRecvBytes)
	thrift, err := s.serveThrift(ln.Addr(), limit)
	if err != nil {
		return err
	}
	defer thrift.stop()
	gs := grpcserver.New(grpcserver.Options{
		Creds: s.Creds, MaxStreams: s.MaxStreams, Flooded: s.Flooded, MaxRecvBytes: limit, Unknown: s.unknown, Foreign: thrift.foreign(),
	})
	for _, svc := range s.services {
		gs.RegisterService(svc.overGRPC(), svc.impl)
	}
	failed := make(chan error, 1)
	go func() { failed <- gs.Serve(ln) }()
	ready()
	select {
	case err := <-failed:
		return err
	case <-s.exit:
	}
	var stopping sync.WaitGroup
	stopping.Go(thrift.stop)
	gs.Close(exitWait)
	stopping.Wait()
	return <-failed
}

// Stop ends Serve. It cuts calls that still run, so drain the streams before Stop.
func (s *Server) Stop() {
	<-s.ready
	close(s.exit)
}

// Ready returns a channel that is closed once Serve answers calls, or has failed.
func (s *Server) Ready() <-chan struct{} { return s.ready }

func splitName(full string) (pkg, short string) {
	if i := strings.LastIndexByte(full, '.'); i >= 0 {
		return full[:i], full[i+1:]
	}
	return "", full
}
