package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/internal/descriptors"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/rpc/callctx"
	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/rpc/link/hello"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Server serves gRPC services over links. Call RegisterService before Serve.
type Server struct {
	opts     Options
	services map[string]service // by full name
	methods  map[string]method  // by full name with the leading slash

	mu        sync.Mutex // guards the following fields
	listeners map[net.Listener]bool
	conns     map[*mux.Conn]bool
	open      int // connections, also those without a HELLO from the caller

	serving context.Context //nolint:containedctx // the server's lifetime: done when stopped
	end     context.CancelFunc

	owned sync.WaitGroup // the goroutines of connections
}

type service struct {
	desc *grpc.ServiceDesc
	impl any
}

type method struct {
	handler grpc.StreamHandler
	impl    any
}

// NewServer returns a Server without services.
func NewServer(o Options) *Server {
	o.Mux.Identity = cmp.Or(o.Mux.Identity, newIdentity())
	s := &Server{
		opts: o.withDefaults(), services: map[string]service{}, methods: map[string]method{},
		listeners: map[net.Listener]bool{}, conns: map[*mux.Conn]bool{},
	}
	s.serving, s.end = context.WithCancel(context.Background())
	return s
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.services[desc.ServiceName] = service{desc, impl}
	for _, m := range desc.Methods {
		s.methods["/"+desc.ServiceName+"/"+m.MethodName] = method{delivery.Unary(m), impl}
	}
	for _, m := range desc.Streams {
		s.methods["/"+desc.ServiceName+"/"+m.StreamName] = method{m.Handler, impl}
	}
}

// GetServiceInfo implements reflection.ServiceInfoProvider.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo {
	infos := make(map[string]grpc.ServiceInfo, len(s.services))
	for name, svc := range s.services {
		info := grpc.ServiceInfo{Metadata: svc.desc.Metadata}
		for _, m := range svc.desc.Methods {
			info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.MethodName})
		}
		for _, m := range svc.desc.Streams {
			info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.StreamName, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams})
		}
		infos[name] = info
	}
	return infos
}

// Serve accepts connections until Stop or Drain is called, or the listener is closed.
func (s *Server) Serve(ln net.Listener) error {
	ln = descriptors.Listener(ln)
	if s.opts.TLS != nil {
		ln = tls.NewListener(ln, s.opts.TLS)
	}
	defer ln.Close() //nolint:errcheck // the listener accepts no more connections in any case
	s.mu.Lock()
	if s.stopped() {
		s.mu.Unlock()
		return nil
	}
	s.listeners[ln] = true
	s.mu.Unlock()
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return s.closed(err)
		default: // too many open files, or the caller has closed the connection
			select {
			case <-s.serving.Done():
				return nil
			case <-time.After(acceptAgain):
			}
			continue
		}
		s.mu.Lock()
		if s.stopped() || s.open >= s.opts.MaxConns {
			_ = nc.Close()
		} else {
			s.open++
			s.owned.Go(func() {
				defer s.closedOne()
				s.serveConn(nc)
			})
		}
		s.mu.Unlock()
	}
}

// acceptAgain is the pause after a failed Accept.
const acceptAgain = 50 * time.Millisecond

// closedOne makes room for another connection.
func (s *Server) closedOne() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// stopped reports whether Stop or Drain was called.
func (s *Server) stopped() bool { return s.serving.Err() != nil }

// closed returns the error for a listener that was closed: nil if the server has closed it.
func (s *Server) closed(err error) error {
	if s.stopped() {
		return nil
	}
	return err
}

// greet does the TLS handshake, if there is one, and exchanges HELLOs with a caller. It fails as
// soon as the server stops.
func (s *Server) greet(nc net.Conn) (peer frame.Greeting, buffered []byte, err error) {
	ctx, cancel := context.WithTimeout(s.serving, hello.Timeout)
	defer cancel()
	if tc, ok := nc.(*tls.Conn); ok {
		if err := tc.HandshakeContext(ctx); err != nil {
			if s.opts.Refused != nil && !s.stopped() {
				s.opts.Refused(nc.RemoteAddr(), err)
			}
			return peer, nil, err
		}
	}
	return hello.Exchange(ctx, nc, s.opts.Mux.Greeting())
}

// serveConn serves a connection until it ends.
func (s *Server) serveConn(nc net.Conn) {
	greeting, buffered, err := s.greet(nc)
	if err != nil {
		_ = nc.Close() // the peer does not speak the protocol of links, or the server stops
		return
	}
	from := &remote{Addr: nc.RemoteAddr()}
	e := &calleeEnd{server: s, peer: &peer.Peer{Addr: from}}
	if tc, ok := nc.(*tls.Conn); ok {
		e.peer.AuthInfo = credentials.TLSInfo{State: tc.ConnectionState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	}
	c := mux.New(nc, greeting, e, s.opts.Mux)
	from.conn = c
	s.mu.Lock()
	if s.stopped() {
		s.mu.Unlock()
		_ = nc.Close()
		return
	}
	s.conns[c] = true
	s.mu.Unlock()
	c.Start(buffered)
	<-c.Done()
	c.Close(mux.ErrClosed)
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// stop closes the listeners, and returns the connections.
func (s *Server) stop() (conns []*mux.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	for ln := range s.listeners {
		_ = ln.Close()
	}
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// Stop ends the connections and their streams. It returns when all handlers have returned.
func (s *Server) Stop() {
	for _, c := range s.stop() {
		c.Fail(mux.ErrClosed)
	}
	s.owned.Wait()
}

// Drain accepts no more connections, and asks the peers to open no more streams. A peer closes its
// connection when the last stream on it has ended. Drain returns when all connections are closed,
// or when ctx is done. Then the caller must call Stop.
func (s *Server) Drain(ctx context.Context) {
	conns := s.stop()
	for _, c := range conns {
		c.Goaway("the server shuts down")
	}
	for _, c := range conns {
		select {
		case <-c.Done():
		case <-ctx.Done():
			return
		}
	}
}

// A remote is the address of a caller. It implements connloss.Addr: it reports whether the caller's
// connection broke.
type remote struct {
	net.Addr
	conn *mux.Conn
}

// Lost reports whether the connection is broken or closed.
func (r *remote) Lost() bool { return r.conn.Lost() }

// Doubt implements connloss.Doubter.
func (r *remote) Doubt() { r.conn.Doubt() }

// A calleeEnd serves the streams of one connection.
type calleeEnd struct {
	server *Server
	peer   *peer.Peer
}

// Open implements mux.Opener. The goroutine that serves the call always sends an END, whatever the
// handler does.
func (e *calleeEnd) Open(call frame.Call, s *mux.Stream) (serve func(returned func())) {
	st := &serverStream{s: s, method: call.Method}
	var ctx context.Context = &callctx.Call{Context: context.Background(), Headers: call.Headers, Peer: e.peer, Stream: transportStream{st}}
	var stop context.CancelFunc
	if call.Timeout > 0 {
		ctx, stop = context.WithDeadline(ctx, time.Now().Add(call.Timeout))
	} else {
		ctx, stop = context.WithCancel(ctx)
	}
	s.OnOver(func() {
		stop()
		st.over.Cancel()
	})
	st.ctx, st.unhook = ctx, func() bool { return true }
	if call.Timeout > 0 {
		st.unhook = context.AfterFunc(ctx, func() {
			s.Expire(status.FromContextError(ctx.Err()).Err())
			st.over.Cancel()
		})
	}
	return func(returned func()) {
		err := error(errExited) // the error if the handler does not return
		defer func() {
			if errors.Is(err, loop.ErrLeft) {
				st.released.add(&st.mu, returned)
				return
			}
			st.Finish(err, nil)
			returned()
		}()
		m, ok := e.server.methods[call.Method]
		if !ok {
			service, name, _ := strings.Cut(strings.TrimPrefix(call.Method, "/"), "/")
			err = status.Errorf(codes.Unimplemented, "unknown method %s of service %s", name, service)
			return
		}
		err = m.handler(m.impl, st)
	}
}

// errExited ends a call whose handler has exited its goroutine (runtime.Goexit).
var errExited = streamerr.New(streamerr.Internal, "the goroutine of the call's handler has exited")

// A serverStream is the callee's end of a stream.
type serverStream struct {
	s      *mux.Stream
	ctx    context.Context //nolint:containedctx // a gRPC stream has a context
	method string
	unhook func() bool // removes the hook on the deadline
	over   loop.Canceler
	on     *stream.Loop // carries the next message; owned by the goroutine that sends

	mu       sync.Mutex // guards the following fields
	md       metadata.MD
	finished hooks
	released hooks
}

var (
	_ grpc.ServerStream = (*serverStream)(nil)
	_ loop.Sink         = (*serverStream)(nil)
)

// Context implements grpc.ServerStream.
func (st *serverStream) Context() context.Context { return st.ctx }

// SetHeader implements grpc.ServerStream. It drops the headers of answers.
func (st *serverStream) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream. It drops the headers of answers.
func (st *serverStream) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (st *serverStream) SetTrailer(md metadata.MD) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.md = metadata.Join(st.md, md)
}

// Carried implements loop.Sink.
func (st *serverStream) Carried(on *stream.Loop) { st.on = on }

// Attend implements loop.Sink.
func (st *serverStream) Attend(fresh func() any, take func(m any, err error) bool, ended func(err error)) {
	st.s.Attend(st.ctx, fresh, func(_ *stream.Loop, m any, err error) bool { return take(m, err) }, ended, codes.InvalidArgument)
}

// More reports whether RecvMsg would return at once. Only the goroutine that calls RecvMsg may call
// it.
func (st *serverStream) More() bool { return st.s.More() }

// Touched implements prefetch.Toucher.
func (st *serverStream) Touched(to *prefetch.List) {
	st.s.Touched(to)
	to.Add(prefetch.Of(st))
}

// SendMsg implements grpc.ServerStream.
func (st *serverStream) SendMsg(m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	return st.s.Send(st.on, msg)
}

// RecvMsg implements grpc.ServerStream. It returns INVALID_ARGUMENT for a message that cannot be
// decoded; the next message can be received after that.
func (st *serverStream) RecvMsg(m any) error { return st.s.Recv(m, codes.InvalidArgument) }

// A transportStream lets grpc.SetTrailer and similar functions work inside handlers.
type transportStream struct{ st *serverStream }

var _ grpc.ServerTransportStream = transportStream{}

// Method implements grpc.ServerTransportStream.
func (t transportStream) Method() string { return t.st.method }

// SetHeader implements grpc.ServerTransportStream.
func (t transportStream) SetHeader(md metadata.MD) error { return t.st.SetHeader(md) }

// SendHeader implements grpc.ServerTransportStream.
func (t transportStream) SendHeader(md metadata.MD) error { return t.st.SendHeader(md) }

// SetTrailer implements grpc.ServerTransportStream.
func (t transportStream) SetTrailer(md metadata.MD) error {
	t.st.SetTrailer(md)
	return nil
}
