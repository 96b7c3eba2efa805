// Package callctx has the contexts of calls that links serve.
//
// A handler reads the headers, the peer and the stream of its call from the call's context, with
// functions of grpc-go. grpc-go keeps each in a context of its own, and the headers in a map, for as
// long as the call lasts. Here they are one context, and the map is made on demand: a hop reads the
// headers once, when the call begins.
package callctx

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/whence-dev/whence/internal/ctxkey"
)

// A Call is the context of a call.
type Call struct {
	context.Context //nolint:containedctx // the values of the server

	// Headers are alternating keys and values.
	Headers []string
	Peer    *peer.Peer
	Stream  grpc.ServerTransportStream
}

// The keys of grpc-go's contexts, which grpc-go does not export.
var (
	headersKey = ctxkey.Of(func(ctx context.Context) { metadata.FromIncomingContext(ctx) })
	peerKey    = ctxkey.Of(func(ctx context.Context) { peer.FromContext(ctx) })
	streamKey  = ctxkey.Of(func(ctx context.Context) { grpc.ServerTransportStreamFromContext(ctx) })
)

type key struct{}

// Value implements context.Context.
func (c *Call) Value(k any) any {
	switch k {
	case key{}:
		return c
	case headersKey:
		return metadata.Pairs(c.Headers...)
	case peerKey:
		return c.Peer
	case streamKey:
		return c.Stream
	}
	return c.Context.Value(k)
}

// Header returns the values of a header of a call, without copying all headers.
func Header(call context.Context, name string) (values []string) {
	c, ok := call.Value(key{}).(*Call)
	if !ok {
		return metadata.ValueFromIncomingContext(call, name)
	}
	for i := 0; i+1 < len(c.Headers); i += 2 {
		if strings.EqualFold(c.Headers[i], name) {
			values = append(values, c.Headers[i+1])
		}
	}
	return values
}
