// Package grpcserver makes grpc-go's server fit for a port that anybody may reach: it bounds
// handshakes, headers, messages, streams and floods of frames, notices dead callers, distinguishes a
// broken connection from a reset (package connloss), and ends within a bound.
//
// A caller that does not speak HTTP/2 can be handed to another server: the first byte of its
// connection tells.
package grpcserver

import (
	"errors"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // callers may compress their messages
	"google.golang.org/grpc/keepalive"

	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/guard/flood"
)

// DefaultMaxRecvBytes bounds a received message, in bytes. It is also grpc-go's default.
const DefaultMaxRecvBytes = 4 << 20

const (
	// These two detect a peer that vanished without closing its connections.
	pingEvery   = 10 * time.Second
	pingTimeout = 5 * time.Second
	// handshakeTimeout bounds the handshake of a new connection; grpc-go's default is two minutes.
	handshakeTimeout = 10 * time.Second
)

// Options configure a server. The zero value serves plain TCP.
type Options struct {
	// Creds authenticate callers; nil means plain TCP.
	Creds credentials.TransportCredentials
	// MaxStreams is the number of open streams of a connection; 0 means no bound. Further streams are
	// refused. A connection whose peer opens them all the same, or sends a flood of frames, is closed.
	MaxStreams uint32
	// Flooded is called with the address of a caller whose connection was closed because of
	// MaxStreams or a flood of frames; nil for none.
	Flooded flood.Report
	// MaxRecvBytes bounds a received message, also after decompression; 0 means DefaultMaxRecvBytes.
	MaxRecvBytes int
	// Unknown answers calls of services and methods that are not registered; nil for UNIMPLEMENTED.
	Unknown grpc.StreamHandler
	// Foreign takes the connections that do not begin like HTTP/2, and closes them in the end; nil
	// for none. Only plain TCP can have such connections.
	Foreign func(net.Conn)
}

// A Server is a grpc-go server.
type Server struct {
	*grpc.Server
	limit int // bytes of a received message

	mu    sync.Mutex // guards conns
	conns *listener  // nil until Serve is called
}

// New returns a server without services.
func New(o Options) *Server {
	if !Secure(o.Creds) {
		o.Creds = insecure.NewCredentials()
		if o.Foreign != nil {
			o.Creds = sorter{o.Creds, o.Foreign}
		}
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = math.MaxUint32
	}
	if o.MaxRecvBytes == 0 {
		o.MaxRecvBytes = DefaultMaxRecvBytes
	}
	s := &Server{limit: o.MaxRecvBytes}
	options := []grpc.ServerOption{
		grpc.Creds(connloss.Sense(flood.Credentials(o.Creds, o.MaxStreams, o.Flooded))),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxHeaderListSize(guard.MaxHeaderBytes),
		grpc.MaxRecvMsgSize(unreadSlack * o.MaxRecvBytes),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingTimeout / 2, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(o.MaxStreams),
	}
	if o.Unknown != nil {
		options = append(options, grpc.UnknownServiceHandler(s.call(o.Unknown)))
	}
	s.Server = grpc.NewServer(options...)
	return s
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	own := *desc
	own.Streams = slices.Clone(desc.Streams)
	for i := range own.Streams {
		own.Streams[i].Handler = s.call(own.Streams[i].Handler)
	}
	s.Server.RegisterService(&own, impl)
}

func (s *Server) call(next grpc.StreamHandler) grpc.StreamHandler {
	return func(impl any, st grpc.ServerStream) error {
		return next(impl, &call{ServerStream: st, limit: s.limit})
	}
}

// Secure reports whether creds encrypt connections. Nil stands for plain TCP.
func Secure(creds credentials.TransportCredentials) bool {
	return creds != nil && creds.Info().SecurityProtocol != insecure.NewCredentials().Info().SecurityProtocol
}

// Serve accepts connections on ln until Close is called or ln fails. It returns nil after Close.
func (s *Server) Serve(ln net.Listener) error {
	conns := newListener(ln)
	s.mu.Lock()
	s.conns = conns
	s.mu.Unlock()
	if err := s.Server.Serve(conns); !errors.Is(err, grpc.ErrServerStopped) { // stopped before Serve had begun
		return err
	}
	return nil
}

// Close asks the callers to open no more streams, waits at most within for the end of the open
// streams, and closes the connections.
func (s *Server) Close(within time.Duration) {
	late := time.AfterFunc(within, func() {
		s.mu.Lock()
		conns := s.conns
		s.mu.Unlock()
		if conns != nil {
			conns.closeAll() // also those in their handshake, for which Stop waits
		}
		s.Stop()
	})
	defer late.Stop()
	s.GracefulStop()
}
