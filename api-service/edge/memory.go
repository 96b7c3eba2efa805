package edge

import (
	"context"
	"net"

	"github.com/cloudwego/hertz/pkg/network"

	"github.com/whence-dev/whence/pkg/rpc"
)

// Handler returns the handler of one client connection, for programs with their own connections,
// such as connections in memory. The context of a connection must end when the client closes it.
// addr is the address that clients connect to. Find must run in the meantime. Drain ends the
// streams.
func (e *Edge) Handler(addr net.Addr) (func(ctx context.Context, conn network.Conn) error, error) {
	h := e.public(addr)
	return h.Serve, h.Init()
}

// Find discovers and probes chat-services until ctx is done.
func (e *Edge) Find(ctx context.Context) { e.chats.Run(ctx) }

// Hop returns the edge's hop: the records of its streams.
func (e *Edge) Hop() *rpc.Hop { return e.hop }
