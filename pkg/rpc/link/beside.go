package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// A Registrar registers services and lists them, as grpc-go's server does.
type Registrar interface {
	grpc.ServiceRegistrar
	GetServiceInfo() map[string]grpc.ServiceInfo
}

// A Port serves the services of a gRPC server over links, too, on a port of its own.
type Port struct {
	server *Server
	ln     net.Listener
	served sync.WaitGroup
}

// offset is the distance from a server's port to its default port for links, so that firewalls can name it.
const offset = 10

// OpenPort listens on a port at the address of ln, the listener of the gRPC server. Port 0 means the port of
// ln plus 10 or, if that port is taken, any free port, which log reports unless it is nil. The service Links of the gRPC server
// names the port to callers.
func OpenPort(ln net.Listener, port int, o Options, log *slog.Logger) (*Port, error) {
	addr, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return nil, errors.New("link: only a server that listens on TCP can have links")
	}
	listen := o.Listen
	if listen == nil {
		listen = func(addr *net.TCPAddr) (net.Listener, error) { return net.ListenTCP("tcp", addr) }
	}
	at := func(port int) (net.Listener, error) {
		return listen(&net.TCPAddr{IP: addr.IP, Port: port, Zone: addr.Zone})
	}
	if port != 0 {
		own, err := at(port)
		if err != nil {
			return nil, err
		}
		return &Port{server: NewServer(o), ln: own}, nil
	}
	own, err := at(addr.Port + offset)
	if err != nil { // taken, or above 65535
		reason := err
		if own, err = at(0); err != nil {
			return nil, err
		}
		if log != nil {
			log.Warn("the default port for links is taken, so links have another one; --link-port sets it", "taken", addr.Port+offset, "port", own.Addr().String(), "err", reason)
		}
	}
	return &Port{server: NewServer(o), ln: own}, nil
}

// Serve serves links until Close. It returns at once.
func (p *Port) Serve() {
	p.served.Go(func() { _ = p.server.Serve(p.ln) }) // fails only if its listener was closed
}

// Close asks the callers to open no more streams, waits at most within for the end of their
// connections, and ends the remaining connections. It returns when all handlers have returned.
func (p *Port) Close(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	p.server.Drain(ctx)
	p.server.Stop()
	p.served.Wait()
}

// Beside returns a registrar that registers services both with srv and for links.
func (p *Port) Beside(srv Registrar) Registrar { return both{srv, p.server} }

// Advertise registers the service that names the port to callers.
func (p *Port) Advertise(r grpc.ServiceRegistrar) {
	l := &links{identity: p.server.opts.Mux.Identity}
	if addr, ok := p.ln.Addr().(*net.TCPAddr); ok {
		l.port = uint32(addr.Port)
	}
	streamv1.RegisterLinksServer(r, l)
}

// both registers services with two servers.
type both struct {
	Registrar
	links *Server
}

// RegisterService implements grpc.ServiceRegistrar.
func (b both) RegisterService(desc *grpc.ServiceDesc, impl any) {
	b.Registrar.RegisterService(desc, impl)
	b.links.RegisterService(desc, impl)
}

// links implements whence.stream.v1.Links.
type links struct {
	streamv1.UnimplementedLinksServer
	port     uint32
	identity string
}

// Where implements streamv1.LinksServer.
func (l *links) Where(context.Context, *streamv1.WhereRequest) (*streamv1.WhereResponse, error) {
	return &streamv1.WhereResponse{Port: l.port, Identity: l.identity}, nil
}
