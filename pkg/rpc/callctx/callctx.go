// Package callctx has the contexts of calls over links. No other package knows how grpc-go keeps the
// values of its contexts.
//
// A handler reads the headers, the peer and the stream of its call from the call's context, with
// functions of grpc-go. grpc-go keeps each in a context of its own, and the headers in a map, for as
// long as the call lasts. Here they are one context, and the map is made on demand: a hop reads the
// headers once, when the call begins. A caller reads its outgoing headers without a map, too. With four
// headers, this saves about 1 KiB and a dozen allocations per call.
package callctx

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
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
	headersKey  = keyOf(func(ctx context.Context) { metadata.FromIncomingContext(ctx) })
	peerKey     = keyOf(func(ctx context.Context) { peer.FromContext(ctx) })
	streamKey   = keyOf(func(ctx context.Context) { grpc.ServerTransportStreamFromContext(ctx) })
	outgoingKey = keyOf(func(ctx context.Context) { metadata.FromOutgoingContext(ctx) })
)

// keyOf returns the last key that lookUp looks up in a context, or nil if lookUp looks up none.
func keyOf(lookUp func(ctx context.Context)) any {
	s := &spy{Context: context.Background()}
	lookUp(s)
	return s.key
}

// A spy is a context that records the key that is looked up in it.
type spy struct {
	context.Context //nolint:containedctx // it is a context

	key any
}

// Value implements context.Context.
func (s *spy) Value(key any) any {
	s.key = key
	return nil
}

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
