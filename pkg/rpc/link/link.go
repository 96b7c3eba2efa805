// Package link carries the calls between our own services over a few long-lived connections. Each
// connection multiplexes many streams: one frame can hold messages of several streams.
//
// It is a binding of the same protocol as gRPC: package rpc's Dial and Serve run over it unchanged,
// because a ClientConn is a grpc.ClientConnInterface and a Server takes gRPC services. Statuses with
// their details, trailers, headers, deadlines and half-closes cross it as they cross gRPC; headers of
// an answer do not exist. What differs is the cost of a message:
//
//   - The goroutine that reads a connection takes all frames that one read returns, and then hands the
//     messages to the readers of their streams by function calls (package loop).
//   - A message is encoded into the buffer of the connection. Messages that are sent while the
//     connection is written share the next write and, as far as they fit, one frame.
//   - A lone message is written at once, or at the end of the batch if a Loop carries it. A connection
//     that would write several times per FlushEvery writes once in that time, or when 64 KiB wait.
//
// Nothing grows without bound. A sender has a credit per stream, and waits when it is used up; the
// receiver grants it again as its reader reads. So a stream that is not read stops its own sender, and
// delays no other stream. A connection whose peer does not read stops all of its senders. Messages of
// more than 16 KiB are sent in parts, between which other streams' messages go.
//
// A connection that breaks ends each of its streams with UNAVAILABLE, which package rpc reports as
// PEER_LOST, on either end. A peer that is silent is sent a PING, and is lost if it stays silent.
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

// Options configure one end of links. The zero value has the defaults.
type Options struct {
	// Mux configures each connection. A Server without an identity makes one.
	Mux mux.Options
	// Links is the number of connections to one peer at most; 0 is one per core, at most MaxLinks.
	Links int
	// TLS configures the connections; nil is plain TCP.
	TLS *tls.Config
	// Dial makes network connections; nil uses package net.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Watchful returns the Options of an end that must detect a frozen peer within about 3 s: a process that is stopped
// keeps its connections. They are for callers that can continue their streams elsewhere.
func Watchful() Options {
	return Options{Mux: mux.Options{PingEvery: 750 * time.Millisecond, PingTimeout: 1500 * time.Millisecond}}
}

// MaxLinks bounds the default number of connections to one peer.
const MaxLinks = 8

// withDefaults returns o with its defaults filled in.
func (o Options) withDefaults() Options {
	o.Mux = o.Mux.WithDefaults()
	o.Links = cmp.Or(o.Links, min(runtime.GOMAXPROCS(0), MaxLinks))
	return o
}
