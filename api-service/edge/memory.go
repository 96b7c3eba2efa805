package edge

import (
	"context"
	"net"

	"github.com/cloudwego/hertz/pkg/network"

	"github.com/whence-dev/whence/pkg/rpc"
)

// Handler returns what serves one connection of a client, for programs that bring connections of their own, such as
// connections in memory. Its context must end when the client closes the connection. addr is the address that clients
// connect to. Find must run meanwhile. Streams end by Drain.
func (e *Edge) Handler(addr net.Addr) (func(ctx context.Context, conn network.Conn) error, error) {
	h := e.server(addr)
	return h.Serve, h.Init()
}

// Find finds chat-services and probes them, until ctx is done.
func (e *Edge) Find(ctx context.Context) { e.chats.Run(ctx) }

// Hop returns what the edge knows of its streams.
func (e *Edge) Hop() *rpc.Hop { return e.hop }
