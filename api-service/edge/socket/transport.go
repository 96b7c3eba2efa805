package socket

import (
	"context"
	"net"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/network/netpoll"

	"github.com/whence-dev/whence/api-service/edge/httpd"
)

// Transport returns netpoll's transport for Hertz, with handlers that may leave their requests.
// Accept must be called for each connection.
func Transport(o *config.Options) network.Transporter { return transport{netpoll.NewTransporter(o)} }

type transport struct{ network.Transporter }

// ListenAndServe implements network.Transporter.
func (t transport) ListenAndServe(serve network.OnData) error {
	return t.Transporter.ListenAndServe(func(ctx context.Context, conn any) error { return Serve(ctx, conn, serve) })
}

// Serve serves the requests of a connection whose data has arrived, until the connection is closed or
// a handler leaves. ctx is the context of Accept. Calls for one connection must not be concurrent.
func Serve(ctx context.Context, conn any, serve network.OnData) error {
	if s := socketOf(ctx); s != nil {
		return s.serve(ctx, serve)
	}
	return serve(ctx, conn)
}

// Listener returns the listener once it listens. Hertz requires this method.
func (t transport) Listener() net.Listener {
	l, ok := t.Transporter.(interface{ Listener() net.Listener })
	if !ok {
		return nil
	}
	return l.Listener()
}

// serve lets Hertz serve the requests of the connection, until Hertz closes the connection or a
// handler leaves.
func (s *Socket) serve(ctx context.Context, serve network.OnData) error {
	if !s.begin(ctx) {
		return s.conn.Close() // the client's data is not read
	}
	h := &hertzConn{Conn: s.poll, socket: s}
	err := serve(ctx, h)
	s.end()
	return err
}

// begin waits until the previous request has been answered. It returns false if no further request
// is answered, for example because the client has left meanwhile.
func (s *Socket) begin(ctx context.Context) bool {
	s.mu.Lock()
	waited := s.busy
	if s.waits = waited; waited {
		s.timer.Reset(lookEvery)
	}
	for s.busy && !s.left {
		if s.freed == nil {
			s.freed = make(chan struct{})
		}
		freed := s.freed
		s.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if waited && s.left {
		return false
	}
	s.timer.Stop()
	s.waits, s.running = false, !s.last
	return s.running
}

// end records that Hertz has returned. If Hertz has closed the connection, begin is not called
// again.
func (s *Socket) end() {
	s.mu.Lock()
	s.running, s.watched = false, false
	s.timer.Stop()
	ends := s.last && !s.busy
	s.rest()
	s.mu.Unlock()
	if ends {
		_ = s.conn.Close() // netpoll's Close never fails
	}
}

// A hertzConn is a connection while Hertz uses it. Only the goroutine of the handler uses a
// hertzConn.
type hertzConn struct {
	*netpoll.Conn
	socket *Socket
	left   bool
}

// Leave lets the handler of c return while other goroutines answer the request: Hertz writes no
// answer, and neither reads from the connection nor closes it. Leave returns false if this
// connection does not support it. After Leave, c belongs to Hertz.
func Leave(c *app.RequestContext) bool {
	h, ok := c.GetConn().(*hertzConn)
	if ok {
		h.left = true
		if httpd.Of(c).Unread() { // the rest of the body would be taken for the next request
			h.socket.finish()
		}
		c.SetConnectionClose() // makes Hertz serve no further request, and call Close
	}
	return ok
}

// Left implements httpd.Watcher.
func (h *hertzConn) Left() bool { return h.left }

// Watch implements httpd.Watcher.
func (h *hertzConn) Watch(body int64) {
	s := h.socket
	s.mu.Lock()
	defer s.mu.Unlock()
	if body < 0 || body > maxRefused {
		body = maxRefused
	}
	s.watched, s.room = true, max(s.body, int(body))
	s.look()
}

// BodyRead implements httpd.Watcher.
func (h *hertzConn) BodyRead() {
	h.socket.mu.Lock()
	defer h.socket.mu.Unlock()
	h.socket.room = h.socket.body
}

// Unwatch implements httpd.Watcher.
func (h *hertzConn) Unwatch() {
	s := h.socket
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = false
	s.timer.Stop()
}

// Close implements net.Conn.
func (h *hertzConn) Close() error {
	if h.left {
		return nil
	}
	return h.Conn.Close()
}

// Flush implements network.Conn.
func (h *hertzConn) Flush() error {
	if h.left { // other goroutines write
		return nil
	}
	return h.Conn.Flush()
}
