package network

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
)

// window is the number of unread bytes of a stream. It is far below the default, so that short
// answers meet backpressure.
const window = 2 << 10

// CalleeGivesUp is the time after which a callee gives up a silent connection.
const CalleeGivesUp = mux.DefaultPingEvery + mux.DefaultPingTimeout

// dialGivesUp bounds a connection attempt over a stalled path.
const dialGivesUp = time.Second

// goodbye bounds the orderly end of connections when a host stops.
const goodbye = 200 * time.Millisecond

// A Host represents a process. It implements guard.Server.
type Host struct {
	*link.Server
	net  *Network
	name string // its address
	main *listener
	port *link.Port // of the links, beside the Server; nil without one
	own  *listener  // of port

	// Guarded by the network's mu.
	up    bool // the host accepts connections
	conns map[*conn]bool
}

// Host returns a new process at an address, which does not listen yet. An earlier process at the
// address must have been killed or stopped. If upgraded is true, the process serves links on a port
// beside its Server, which stands for a gRPC server: bidi streams go there (link.Upgrade).
func (n *Network) Host(addr string, upgraded bool) *Host {
	o := link.Options{Mux: mux.Options{Window: window}}
	h := &Host{Server: link.NewServer(o), net: n, name: addr, conns: map[*conn]bool{}}
	h.main = newListener(h, &net.TCPAddr{Port: 1})
	if upgraded {
		o.Listen = h.listen
		h.port, _ = link.OpenPort(h.main, 0, o, nil) // listen fails once at most
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[addr] = h
	return h
}

// listen opens the listener of the links. The first port that is asked for may be taken.
func (h *Host) listen(addr *net.TCPAddr) (net.Listener, error) {
	if addr.Port == 0 {
		addr.Port = 12
	} else if (hash(h.name)^h.net.seed)%8 == 0 {
		return nil, syscall.EADDRINUSE
	}
	h.own = newListener(h, addr)
	return h.own, nil
}

// RegisterService implements grpc.ServiceRegistrar.
func (h *Host) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if h.port == nil {
		h.Server.RegisterService(desc, impl)
		return
	}
	h.port.Beside(h.Server).RegisterService(desc, impl)
}

// Listen makes the host accept connections. Its services must have been registered.
func (h *Host) Listen() {
	h.net.mu.Lock()
	h.up = true
	h.net.mu.Unlock()
	if h.port != nil {
		h.port.Advertise(h.Server)
		h.port.Serve()
	}
	h.main.served = make(chan struct{})
	go func() {
		defer close(h.main.served)
		_ = h.Serve(h.main) // ends with Stop
	}()
}

// A listener is a port of a host. It implements net.Listener.
type listener struct {
	host     *Host
	addr     net.Addr
	accepted chan *end
	closed   chan struct{} // guarded by the network's mu for close
	served   chan struct{} // closed when Serve has returned; nil before Listen
	refused  atomic.Bool   // an Accept has failed, as that of a real listener does now and then
}

func newListener(h *Host, addr net.Addr) *listener {
	return &listener{host: h, addr: addr, accepted: make(chan *end, 64), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		if mix(l.host.net.seed^c.id)%16 == 0 && l.refused.CompareAndSwap(false, true) {
			l.accepted <- c
			return nil, syscall.ECONNABORTED
		}
		return l.host.net.visible(c), nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. The whole host accepts no more connections, and those that were not
// accepted break.
func (l *listener) Close() error {
	l.host.net.mu.Lock()
	l.host.up = false
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	l.host.net.mu.Unlock()
	l.drop()
	return nil
}

// drop breaks the connections that were not accepted, if the listener is closed.
func (l *listener) drop() {
	select {
	case <-l.closed:
	default:
		return
	}
	for {
		select {
		case c := <-l.accepted:
			c.conn.cut(nil)
		default:
			return
		}
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }

// Name returns the address of the process.
func (h *Host) Name() string { return h.name }

// Stop ends the connections of callers, as a service does at its end, and returns when the handlers
// have returned.
func (h *Host) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	if h.port != nil {
		h.port.Close(goodbye)
	}
	h.Drain(ctx)
	h.Server.Stop()
	if h.main.served != nil {
		<-h.main.served
	}
}

// Kill breaks all connections of the process, in both directions, and refuses further ones. The
// process itself notices at once; the other sides notice later.
func (h *Host) Kill() {
	_ = h.main.Close()
	if h.own != nil {
		_ = h.own.Close()
	}
	for _, c := range h.all() {
		c.cut(h)
	}
}

func (h *Host) all() (conns []*conn) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for c := range h.conns {
		conns = append(conns, c)
	}
	return conns
}

// forget removes a connection that both ends have closed.
func (h *Host) forget(c *conn) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	delete(c.caller.host.conns, c)
	delete(c.callee.host.conns, c)
}

// A Client is a process's connection to an address. It connects with the first call, and reconnects
// after a loss. It notes probes and failed dials.
type Client struct {
	link.Conn
	from    *Host
	to      string
	serving atomic.Bool // a worker's health, which is asked before its info
}

var _ grpc.ClientConnInterface = (*Client)(nil)

// Dial returns a connection from a process to an address. o are the options of the product's callers
// there. log is of a caller that looks for links beside the callee's gRPC; nil for another caller.
func (h *Host) Dial(addr string, o link.Options, log *slog.Logger) link.Conn {
	o.Mux.Window, o.Dial = window, h.connect
	c := &Client{Conn: link.NewClient(addr, o), from: h, to: addr}
	if log != nil {
		o.Opened = func(bool) {} // the metrics of the services
		return link.Upgrade(c, addr, o, log)
	}
	return c
}

// visible returns an end as a process sees it.
func (n *Network) visible(e *end) net.Conn {
	if n.blocking {
		return struct{ net.Conn }{e}
	}
	return e
}

// connect opens a connection.
func (h *Host) connect(ctx context.Context, _, addr string) (net.Conn, error) {
	n, asked := h.net, time.Now()
	host, port, _ := strings.Cut(addr, ":")
	addr = host + ":1"
	refused := &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	for {
		n.mu.Lock()
		to, p := n.hosts[addr], n.pathOf(h.name, addr)
		waits := time.Until(p.stalledUntil)
		if waits <= 0 {
			if to == nil || !to.up {
				n.mu.Unlock()
				return nil, refused
			}
			n.serial++
			serial := n.serial
			n.mu.Unlock()
			c := newConn(h, to, serial)
			c.tap, c.asked, c.made = newTap(c), asked, time.Now()
			n.mu.Lock()
			to.conns[c], h.conns[c] = true, true
			n.mu.Unlock()
			ln := to.main
			if port != "1" {
				ln = to.own
			}
			select {
			case ln.accepted <- c.callee:
				ln.drop()
				return n.visible(c.caller), nil
			default: // the backlog is full
				h.forget(c)
				return nil, refused
			}
		}
		n.mu.Unlock()
		late := time.NewTimer(min(waits, dialGivesUp))
		select {
		case <-late.C:
			if waits > dialGivesUp {
				return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ETIMEDOUT}
			}
		case <-ctx.Done():
			late.Stop()
			return nil, ctx.Err()
		}
	}
}

// Invoke implements grpc.ClientConnInterface.
func (c *Client) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	began := time.Now()
	err := c.Conn.Invoke(ctx, method, args, reply, o...)
	probe := Contact{From: c.from, To: c.to, Probe: true, Began: began, At: time.Now(), Answered: err == nil}
	switch reply := reply.(type) {
	case *healthpb.HealthCheckResponse:
		probe.Well = err == nil && reply.GetStatus() == healthpb.HealthCheckResponse_SERVING
		if ask, ok := args.(*healthpb.HealthCheckRequest); ok && ask.GetService() == workerv1.Worker_ServiceDesc.ServiceName {
			if c.serving.Store(probe.Well); probe.Well {
				return nil // the worker's info completes the probe
			}
		}
	case *llmv1.WorkerInfo:
		probe.Well = err == nil && c.serving.Load()
	default:
		if err == nil {
			return nil
		}
	}
	c.from.net.note(probe)
	return err
}

// NewStream implements grpc.ClientConnInterface.
func (c *Client) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, o ...grpc.CallOption) (grpc.ClientStream, error) {
	began := time.Now()
	st, err := c.Conn.NewStream(ctx, desc, method, o...)
	if err != nil {
		c.from.net.note(Contact{From: c.from, To: c.to, Began: began, At: time.Now()})
	}
	return st, err
}
