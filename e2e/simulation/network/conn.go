package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// A Client is a process's connection to an address. It connects with the first call, and reconnects
// after a loss. It implements grpc.ClientConnInterface.
type Client struct {
	from *Host
	to   string

	mu   sync.Mutex
	conn *conn // nil before the first call
}

// Dial returns a connection from a process to an address.
func (h *Host) Dial(addr string) *Client { return &Client{from: h, to: addr} }

// Close breaks the connection. Its streams must have ended.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.cut(c.from)
	}
	return nil
}

// A conn is one TCP connection.
type conn struct {
	net      *Network
	from, to *Host
	addr     *address // of the caller, for the callee

	mu     sync.Mutex // guards the following fields
	broken bool
	calls  map[*Call]bool
}

// An address is a caller's address, which knows whether the connection broke. It implements
// connloss.Addr.
type address struct {
	name string
	lost atomic.Bool
}

var _ net.Addr = (*address)(nil)

func (a *address) Network() string { return "memory" }
func (a *address) String() string  { return a.name }
func (a *address) Lost() bool      { return a.lost.Load() }

var errUnreachable = status.Error(codes.Unavailable, "connection error: desc = \"transport: error while dialing: connection refused\"")

// connect returns the connection, and creates it if necessary.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	for {
		c.mu.Lock()
		n := c.from.net
		if c.conn != nil && !c.conn.isBroken() {
			defer c.mu.Unlock()
			return c.conn, nil
		}
		n.mu.Lock()
		to, l := n.hosts[c.to], n.link(c.from.name, c.to)
		waits := time.Until(l.stalledUntil)
		if waits <= 0 {
			if to == nil || !to.up || !c.from.up {
				n.mu.Unlock()
				c.mu.Unlock()
				return nil, errUnreachable
			}
			c.conn = &conn{net: n, from: c.from, to: to, addr: &address{name: c.from.name}, calls: map[*Call]bool{}}
			to.conns[c.conn], c.from.conns[c.conn] = true, true
			n.mu.Unlock()
			defer c.mu.Unlock()
			return c.conn, nil
		}
		n.mu.Unlock()
		c.mu.Unlock()
		late := time.NewTimer(min(waits, dialGivesUp))
		select {
		case <-late.C:
			if waits > dialGivesUp {
				return nil, status.Error(codes.Unavailable, "connection error: desc = \"transport: i/o timeout\"")
			}
		case <-ctx.Done():
			late.Stop()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

func (c *conn) isBroken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// cut breaks the connection. by notices at once; nil means that both sides notice later.
func (c *conn) cut(by *Host) {
	c.mu.Lock()
	if c.broken {
		c.mu.Unlock()
		return
	}
	c.broken = true
	calls := make([]*Call, 0, len(c.calls))
	for call := range c.calls {
		calls = append(calls, call)
	}
	c.mu.Unlock()
	c.net.mu.Lock()
	delete(c.to.conns, c)
	delete(c.from.conns, c)
	c.net.mu.Unlock()
	now := time.Now()
	for _, call := range calls {
		call.cutAt(now)
	}
	id := hash(c.from.name + c.to.name)
	c.notice(by == c.from, id, 3, callerGivesUp, func() { c.callerNotices(calls) })
	c.notice(by == c.to, id, 4, CalleeGivesUp, func() { c.calleeNotices(calls) })
}

// notice makes one side notice that the connection is broken: now, or after the delay of the link,
// or when its keep-alive fails.
func (c *conn) notice(now bool, id uint64, direction int, givesUp time.Duration, do func()) {
	if now {
		do()
		return
	}
	at := time.Now().Add(c.net.delay(id, direction, int(time.Now().UnixNano()&0xffff)))
	c.net.mu.Lock()
	if l := c.net.link(c.from.name, c.to.name); at.After(l.stalledFrom) && at.Before(l.stalledUntil) {
		at = l.stalledUntil
		if keepAlive := l.stalledFrom.Add(givesUp); keepAlive.Before(at) {
			at = keepAlive
		}
	}
	c.net.mu.Unlock()
	time.AfterFunc(time.Until(at), do)
}

func (c *conn) callerNotices(calls []*Call) {
	for _, call := range calls {
		call.up.end(status.Error(codes.Unavailable, "error reading from server: connection reset by peer"), nil, time.Time{})
		call.down.shut()
	}
}

func (c *conn) calleeNotices(calls []*Call) {
	c.addr.lost.Store(true)
	for _, call := range calls {
		call.mu.Lock()
		call.lostAt = time.Now()
		call.mu.Unlock()
		call.down.end(status.Error(codes.Canceled, "transport: the connection is lost"), nil, time.Time{})
		call.up.shut()
		call.cancel()
	}
}

// stalled breaks the connection for each side when that side's keep-alive would fail.
func (c *conn) stalled(d time.Duration) {
	if d < CalleeGivesUp {
		return
	}
	time.AfterFunc(CalleeGivesUp, func() { c.cut(c.to) })
	if d >= callerGivesUp {
		time.AfterFunc(callerGivesUp, func() { c.cut(c.from) })
	}
}

// Invoke implements grpc.ClientConnInterface.
func (c *Client) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	began := time.Now()
	err := c.invoke(ctx, method, args, reply)
	if health, ok := reply.(*healthpb.HealthCheckResponse); ok {
		well := err == nil && health.GetStatus() == healthpb.HealthCheckResponse_SERVING
		c.from.net.note(Contact{From: c.from, To: c.to, Probe: true, Began: began, At: time.Now(), Well: well})
	} else if err != nil {
		c.from.net.note(Contact{From: c.from, To: c.to, Probe: true, Began: began, At: time.Now()})
	}
	return err
}

func (c *Client) invoke(ctx context.Context, method string, args, reply any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := c.newCall(ctx, method, true)
	if err != nil {
		return err
	}
	if err := st.SendMsg(args); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_ = st.CloseSend()
	if err := st.RecvMsg(reply); err != nil {
		if errors.Is(err, io.EOF) {
			return status.Errorf(codes.Internal, "%s ended without a response", method)
		}
		return err
	}
	if err := st.RecvMsg(nil); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (c *Client) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	began := time.Now()
	st, err := c.newCall(ctx, method, false)
	if err != nil {
		c.from.net.note(Contact{From: c.from, To: c.to, Began: began, At: time.Now()})
		return nil, err // an interface that is nil
	}
	return st, nil
}

func (c *Client) newCall(ctx context.Context, method string, unary bool) (*clientStream, error) {
	opened := time.Now()
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	handler, impl := conn.to.handler(service, name)
	if handler == nil {
		return nil, status.Errorf(codes.Unimplemented, "no method %s", method)
	}
	n := c.from.net
	call := &Call{From: c.from.name, To: c.to, Method: method, Opened: opened, conn: conn, unary: unary}
	n.mu.Lock()
	if !conn.to.up {
		n.mu.Unlock()
		return nil, errUnreachable
	}
	serial := len(n.calls)
	if !unary {
		n.calls = append(n.calls, call)
	}
	n.open++
	conn.to.serving.Add(1)
	n.mu.Unlock()
	call.id = hash(fmt.Sprint(call.From, call.To, method)) + uint64(serial)
	call.down, call.up = newQueue(call, 1), newQueue(call, 2)

	server := peer.NewContext(context.Background(), &peer.Peer{Addr: conn.addr})
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		server = metadata.NewIncomingContext(server, md.Copy())
	}
	server = grpc.NewContextWithServerTransportStream(server, transportStream{call})
	if at, ok := ctx.Deadline(); ok {
		server, call.cancel = context.WithDeadline(server, at)
	} else {
		server, call.cancel = context.WithCancel(server)
	}
	conn.mu.Lock()
	conn.calls[call] = true
	broken := conn.broken
	conn.mu.Unlock()
	if broken {
		call.up.end(errUnreachable, nil, time.Time{})
		call.cancel()
	}
	go func() {
		for at := time.Now().Add(n.delay(call.id, 0, 0)); time.Until(at) > 0 && server.Err() == nil && !conn.isBroken(); at = call.late(at) {
			select {
			case <-time.After(time.Until(at)):
			case <-server.Done():
			}
		}
		call.serve(server, handler, impl)
	}()
	call.undo = context.AfterFunc(ctx, func() { call.reset(ctx) })
	return &clientStream{call: call, ctx: ctx}, nil
}

func (h *Host) handler(service, method string) (grpc.StreamHandler, any) {
	s, ok := h.service(service)
	if !ok {
		return nil, nil
	}
	for _, d := range s.desc.Streams {
		if d.StreamName == method {
			return d.Handler, s.impl
		}
	}
	return nil, nil
}
