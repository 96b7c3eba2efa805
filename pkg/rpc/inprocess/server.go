// Package inprocess calls the services of this process: function calls join the caller and the
// callee, without sockets and without encoding. It uses grpc-go's types, so that services are
// registered, and called through generated stubs, as over a network, with the same endings, records
// and paths.
//
// Between rpc.Dial and rpc.Serve an item passes as a pointer, on the goroutine that carries it to the
// callee's end. An item is valid until the caller's reader returns. So a reader that does not read
// blocks the engine. All other messages are copied when they are sent.
package inprocess

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/whence-dev/whence/pkg/rpc/delivery"
)

// A Server registers services as grpc-go's server does. Services must be registered before the
// first call. After that, all methods are safe for concurrent use.
type Server struct {
	services map[string]grpc.ServiceInfo
	handlers map[string]handler // by full method name, such as "/whence.chat.v1.Chat/Generate"

	base context.Context //nolint:containedctx // done when the server stops; parent of all calls
	stop context.CancelFunc

	mu      sync.Mutex // guards the following fields
	stopped bool
	calls   sync.WaitGroup // running handlers; none is added after the server has stopped
}

// A handler is one method of a service.
type handler func(st grpc.ServerStream) error

// NewServer returns a server without services.
func NewServer() *Server {
	base, stop := context.WithCancel(context.Background())
	return &Server{services: map[string]grpc.ServiceInfo{}, handlers: map[string]handler{}, base: base, stop: stop}
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	info := grpc.ServiceInfo{Metadata: desc.Metadata}
	for _, m := range desc.Methods {
		info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.MethodName})
		s.handle(desc, m.MethodName, impl, delivery.Unary(m))
	}
	for _, m := range desc.Streams {
		info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.StreamName, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams})
		s.handle(desc, m.StreamName, impl, m.Handler)
	}
	s.services[desc.ServiceName] = info
}

func (s *Server) handle(desc *grpc.ServiceDesc, method string, impl any, h grpc.StreamHandler) {
	s.handlers["/"+desc.ServiceName+"/"+method] = func(st grpc.ServerStream) error { return h(impl, st) }
}

// GetServiceInfo implements reflection.ServiceInfoProvider.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo { return s.services }

// Stop refuses further calls with UNAVAILABLE, cancels the running calls, and waits for their
// handlers. Drain the streams before Stop.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.stop()
	s.calls.Wait()
}

// begin registers a call, or returns false if the server has stopped. The caller must call
// s.calls.Done when the handler has returned.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.calls.Add(1)
	}
	return !s.stopped
}
