// Package link carries the calls between our own services over a few long-lived connections. Each
// connection multiplexes many streams: one frame can hold messages of several streams.
//
// A link is a binding of the same protocol as gRPC: package rpc's Dial and Serve run over it
// unchanged, because a ClientConn is a grpc.ClientConnInterface and a Server registers gRPC
// services. Statuses with their details, trailers, headers, deadlines and half-closes cross a link
// as they cross gRPC; only answers have no headers. Links differ from gRPC in the cost of a
// message:
//
//   - The goroutine that reads a connection takes all frames of one read, and then passes the
//     messages to the readers of their streams by function calls (package loop).
//   - A message is encoded into the buffer of the connection. Messages that are sent while the
//     connection is being written share the next write and, as far as they fit, one frame.
//   - A lone message is written at once, or at the end of the batch if a Loop carries it. A
//     connection that would write several times per FlushEvery writes once in that time, or when
//     64 KiB wait.
//
// All buffers are bounded. A sender has a credit per stream, and waits when the credit is used up.
// The receiver grants new credit as its reader reads. So a stream that is not read blocks its own
// sender, but no other stream. A connection whose peer does not read blocks all of its senders.
// Messages of more than 16 KiB are sent in parts, and messages of other streams are sent between
// the parts.
//
// A connection that breaks ends each of its streams with UNAVAILABLE, which package rpc reports as
// PEER_LOST, on both ends. A silent peer is sent a PING, and is lost if it does not answer.
package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/link/mux"
)

// Options configure one end of links. The zero value means the defaults.
type Options struct {
	// Mux configures each connection. A Server without an identity generates one.
	Mux mux.Options
	// Links is the maximum number of connections to one peer; 0 means one per core, but at most
	// MaxLinks.
	Links int
	// MaxConns bounds the connections of a Server; further ones are closed at once, and their
	// callers use gRPC. 0 means DefaultMaxConns.
	MaxConns int
	// TLS configures TLS for the connections; nil means plain TCP.
	TLS *tls.Config
	// Refused is called with the address of a caller whose TLS handshake failed; nil for none.
	Refused func(caller net.Addr, err error)
	// Opened is called when an UpgradedConn opens a stream, also if that fails. linked reports whether
	// the stream uses a link rather than gRPC. nil means no call.
	Opened func(linked bool)
	// Dial opens network connections; nil means package net's dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Listen opens the listener of a Port; nil means package net's.
	Listen func(addr *net.TCPAddr) (net.Listener, error)
}

// Watchful returns Options with which an end detects a frozen peer within about 3 s. A frozen
// process keeps its connections open, so only its silence reveals it. Use Watchful for callers that
// can continue their streams elsewhere.
func Watchful() Options {
	return Options{Mux: mux.Options{PingEvery: 750 * time.Millisecond, PingTimeout: 1500 * time.Millisecond}}
}

// MaxLinks bounds the default number of connections to one peer.
const MaxLinks = 8

// DefaultMaxConns is the default of Options.MaxConns. It is enough for more than a hundred callers.
const DefaultMaxConns = 1000

// withDefaults returns o with the defaults filled in.
func (o Options) withDefaults() Options {
	o.Mux = o.Mux.WithDefaults()
	o.Links = cmp.Or(o.Links, min(runtime.GOMAXPROCS(0), MaxLinks))
	o.MaxConns = cmp.Or(o.MaxConns, DefaultMaxConns)
	return o
}
