package edge

import (
	"context"
	"net"

	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/network"

	"github.com/whence-dev/whence/api-service/edge/socket"
	"github.com/whence-dev/whence/pkg/rpc"
)

// Handler returns the functions that serve clients' connections for programs with a transport of
// their own, such as connections in memory that behave like those of netpoll. accept prepares a new
// connection, as package socket does, and returns its context. serve is called when data has arrived,
// and again after it has returned, while there is data. addr is the address that clients connect to.
// Find must run in the meantime. Drain ends the streams.
func (e *Edge) Handler(addr net.Addr) (accept func(conn net.Conn) context.Context, serve func(ctx context.Context, conn network.Conn) error, err error) {
	h := e.public(addr, server.WithTransport(func(*config.Options) network.Transporter { return noTransport{} }))
	if err := h.Init(); err != nil {
		return nil, nil, err
	}
	if err := h.MarkAsRunning(); err != nil { // otherwise each answer would end its connection
		return nil, nil, err
	}
	onData := func(ctx context.Context, conn any) error {
		return h.Serve(ctx, conn.(network.Conn)) //nolint:forcetypeassert // a connection of package socket, or serve's
	}
	return h.GetOptions().OnAccept, func(ctx context.Context, conn network.Conn) error { return socket.Serve(ctx, conn, onData) }, nil
}

// noTransport is the transport of a server whose connections come from elsewhere.
type noTransport struct{}

// ListenAndServe implements network.Transporter.
func (noTransport) ListenAndServe(network.OnData) error { return nil }

// Close implements network.Transporter.
func (noTransport) Close() error { return nil }

// Shutdown implements network.Transporter.
func (noTransport) Shutdown(context.Context) error { return nil }

// Find discovers and probes chat-services until ctx is done.
func (e *Edge) Find(ctx context.Context) { e.chats.Run(ctx) }

// Hop returns the edge's hop: the records of its streams.
func (e *Edge) Hop() *rpc.Hop { return e.hop }
