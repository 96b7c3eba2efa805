package kitexrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/remote"
	kgrpc "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc"
	"github.com/cloudwego/kitex/pkg/utils"
	"github.com/cloudwego/kitex/server"
	"google.golang.org/grpc"
)

// DialTLS is Dial over TLS. config has the server's name and the certificate authorities for its
// certificate, and the client's certificate if the server asks for one.
func DialTLS(target string, config *tls.Config, descs ...*grpc.ServiceDesc) (*ClientConn, error) {
	return dial(target, descs, client.WithDialer(remote.NewDefaultDialer()), client.WithGRPCTLSConfig(config))
}

// acceptPause is the pause after a connection could not be accepted.
const acceptPause = 50 * time.Millisecond

// handshakeTimeout bounds the TLS handshake of a connection.
const handshakeTimeout = 10 * time.Second

// overTLS returns the options of a server with TLS. The server uses Go's connections, because
// netpoll has no TLS. The server calls ready when it accepts connections.
func (s *Server) overTLS(ready func()) []server.Option {
	return []server.Option{
		server.WithTransServerFactory(tlsServers{config: kgrpc.TLSConfig(s.TLS), refused: s.Refused, ready: ready}),
		server.WithTransHandlerFactory(s.meteredGRPC()), // only gRPC: the detection of other protocols needs netpoll
	}
}

type tlsServers struct {
	config  *tls.Config
	refused func(net.Addr, error)
	ready   func()
}

// NewTransServer implements remote.TransServerFactory.
func (f tlsServers) NewTransServer(opt *remote.ServerOption, h remote.ServerTransHandler) remote.TransServer {
	return &tlsServer{tlsServers: f, opt: opt, handler: h, conns: map[net.Conn]struct{}{}}
}

// A tlsServer runs one goroutine per connection.
type tlsServer struct {
	tlsServers
	opt     *remote.ServerOption
	handler remote.ServerTransHandler
	serving sync.WaitGroup // of connections

	mu      sync.Mutex // guards the following fields
	ln      net.Listener
	conns   map[net.Conn]struct{}
	stopped bool
}

var _ remote.TransServer = (*tlsServer)(nil)

// CreateListener implements remote.TransServer.
func (s *tlsServer) CreateListener(at net.Addr) (net.Listener, error) {
	return net.Listen(at.Network(), at.String())
}

// BootstrapServer implements remote.TransServer: it accepts connections until Shutdown.
func (s *tlsServer) BootstrapServer(ln net.Listener) error {
	s.mu.Lock()
	s.ln = ln
	s.mu.Unlock()
	s.ready()
	for {
		conn, err := ln.Accept()
		if err != nil {
			if s.isStopped() {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			time.Sleep(acceptPause) // too many open files, for example
			continue
		}
		if s.add(conn) {
			s.serving.Go(func() { s.serve(conn) })
		}
	}
}

func (s *tlsServer) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// add registers a connection, or closes it if the server has stopped.
func (s *tlsServer) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		_ = conn.Close()
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

// serve serves the calls of a connection until it ends.
func (s *tlsServer) serve(raw net.Conn) {
	defer func() {
		_ = raw.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, raw)
	}()
	conn := tls.Server(raw, s.config)
	shaking, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	err := conn.HandshakeContext(shaking)
	cancel()
	if err != nil {
		if s.refused != nil {
			s.refused(raw.RemoteAddr(), err)
		}
		return // the client has no valid certificate, or does not use TLS
	}
	ctx, err := s.handler.OnActive(context.Background(), conn)
	if err != nil {
		return
	}
	_ = s.handler.OnRead(ctx, conn) // returns when the connection ends
	s.handler.OnInactive(ctx, conn)
}

// Shutdown implements remote.TransServer. It cuts calls that still run after the exit wait time.
func (s *tlsServer) Shutdown() error {
	s.mu.Lock()
	s.stopped = true
	ln := s.ln
	s.mu.Unlock()
	if ln != nil {
		_ = ln.Close()
	}
	if graceful, ok := s.handler.(remote.GracefulShutdown); ok {
		within, cancel := context.WithTimeout(context.Background(), s.opt.ExitWaitTime)
		_ = graceful.GracefulShutdown(within)
		cancel()
	}
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
	return nil
}

// ConnCount implements remote.TransServer.
func (s *tlsServer) ConnCount() utils.AtomicInt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return utils.AtomicInt(len(s.conns))
}
