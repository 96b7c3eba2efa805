package network

import (
	"context"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

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

// A Host represents a process. It implements guard.Server and net.Listener.
type Host struct {
	*link.Server
	net      *Network
	name     string // its address
	accepted chan net.Conn
	closed   chan struct{}
	served   chan struct{} // closed when Serve has returned; nil before Listen

	// Guarded by the network's mu.
	up    bool // the host accepts connections
	conns map[*conn]bool
}

// Host returns a new process at an address, which does not listen yet. An earlier process at the
// address must have been killed or stopped.
func (n *Network) Host(addr string) *Host {
	h := &Host{
		Server: link.NewServer(link.Options{Mux: mux.Options{Window: window}}),
		net:    n, name: addr, accepted: make(chan net.Conn, 64), closed: make(chan struct{}), conns: map[*conn]bool{},
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[addr] = h
	return h
}

// Listen makes the host accept connections. Its services must have been registered.
func (h *Host) Listen() {
	h.net.mu.Lock()
	h.up = true
	h.net.mu.Unlock()
	h.served = make(chan struct{})
	go func() {
		defer close(h.served)
		_ = h.Serve(h) // ends with Stop
	}()
}

// Accept implements net.Listener.
func (h *Host) Accept() (net.Conn, error) {
	select {
	case c := <-h.accepted:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *Host) Close() error {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.up = false
	select {
	case <-h.closed:
	default:
		close(h.closed)
	}
	return nil
}

// Addr implements net.Listener.
func (h *Host) Addr() net.Addr { return address(h.name) }

// Name returns the address of the process.
func (h *Host) Name() string { return h.name }

// Stop ends the connections of callers, as a service does at its end, and returns when the handlers
// have returned.
func (h *Host) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	h.Drain(ctx)
	h.Server.Stop()
	if h.served != nil {
		<-h.served
	}
}

// Kill breaks all connections of the process, in both directions, and refuses further ones. The
// process itself notices at once; the other sides notice later.
func (h *Host) Kill() {
	_ = h.Close()
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
	*link.ClientConn
	from *Host
	to   string
}

var _ grpc.ClientConnInterface = (*Client)(nil)

// Dial returns a connection from a process to an address. o are the options of the product's callers
// there.
func (h *Host) Dial(addr string, o link.Options) *Client {
	o.Mux.Window, o.Dial = window, h.connect
	return &Client{ClientConn: link.NewClient(addr, o), from: h, to: addr}
}

var _ net.Listener = (*Host)(nil)

// connect opens a connection.
func (h *Host) connect(ctx context.Context, _, addr string) (net.Conn, error) {
	n := h.net
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
			n.mu.Lock()
			to.conns[c], h.conns[c] = true, true
			n.mu.Unlock()
			select {
			case to.accepted <- c.callee:
				return c.caller, nil
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
	err := c.ClientConn.Invoke(ctx, method, args, reply, o...)
	if health, ok := reply.(*healthpb.HealthCheckResponse); ok {
		well := err == nil && health.GetStatus() == healthpb.HealthCheckResponse_SERVING
		c.from.net.note(Contact{From: c.from, To: c.to, Probe: true, Began: began, At: time.Now(), Well: well})
	} else if err != nil {
		c.from.net.note(Contact{From: c.from, To: c.to, Probe: true, Began: began, At: time.Now()})
	}
	return err
}

// NewStream implements grpc.ClientConnInterface.
func (c *Client) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, o ...grpc.CallOption) (grpc.ClientStream, error) {
	began := time.Now()
	st, err := c.ClientConn.NewStream(ctx, desc, method, o...)
	if err != nil {
		c.from.net.note(Contact{From: c.from, To: c.to, Began: began, At: time.Now()})
	}
	return st, err
}
