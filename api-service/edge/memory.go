package edge

import (
	"context"
	"net"

	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/pkg/rpc"
)

// Server returns the server of clients' connections, for programs with connections of their own, such
// as those in memory. addr is the address that clients connect to. Find must run in the meantime. Drain
// ends the streams, and the server's End the connections.
func (e *Edge) Server(addr net.Addr) *connection.Server { return e.public(addr) }

// Find discovers and probes chat-services until ctx is done.
func (e *Edge) Find(ctx context.Context) { e.chats.Run(ctx) }

// Hop returns the edge's hop: the records of its streams.
func (e *Edge) Hop() *rpc.Hop { return e.hop }
