package kitexstream

import (
	"context"
	"net"
	"sync"

	"github.com/cloudwego/kitex/pkg/remote"
)

// connections has the addresses of the callers that are connected to a server. Kitex ends the calls of
// a connection that broke with the same error as the calls of a server that shuts down; the connection
// itself tells the difference. Kitex calls OnInactive before it ends the calls.
type connections struct {
	mu   sync.Mutex // guards open
	open map[string]int
}

var _ remote.InboundHandler = (*connections)(nil)

// has reports whether the caller with an address is connected.
func (c *connections) has(addr net.Addr) bool {
	if addr == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[addr.String()] > 0
}

// OnActive implements remote.InboundHandler.
func (c *connections) OnActive(ctx context.Context, conn net.Conn) (context.Context, error) {
	if addr := conn.RemoteAddr(); addr != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open[addr.String()]++
	}
	return ctx, nil
}

// OnInactive implements remote.InboundHandler.
func (c *connections) OnInactive(ctx context.Context, conn net.Conn) context.Context {
	if addr := conn.RemoteAddr(); addr != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.open[addr.String()]--; c.open[addr.String()] <= 0 {
			delete(c.open, addr.String())
		}
	}
	return ctx
}

// OnRead implements remote.InboundHandler.
func (c *connections) OnRead(ctx context.Context, _ net.Conn) (context.Context, error) {
	return ctx, nil
}

// OnMessage implements remote.InboundHandler.
func (c *connections) OnMessage(ctx context.Context, _, _ remote.Message) (context.Context, error) {
	return ctx, nil
}
