package callctx_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/whence-dev/whence/pkg/rpc/callctx"
)

type stream struct{ grpc.ServerTransportStream }

func (stream) Method() string { return "/a.B/C" }

// TestGRPCFindsTheValuesOfACall: grpc-go's functions find the same in a Call as in contexts of
// grpc-go, also below other contexts.
func TestGRPCFindsTheValuesOfACall(t *testing.T) {
	type own struct{}
	base := context.WithValue(context.Background(), own{}, "value")
	headers := []string{"Traceparent", "one", "x", "two", "traceparent", "three"}
	p := &peer.Peer{LocalAddr: nil}
	var ctx context.Context = &callctx.Call{Context: base, Headers: headers, Peer: p, Stream: stream{}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); !ok || !maps.EqualFunc(md, metadata.Pairs(headers...), slices.Equal) {
		t.Error("headers:", md)
	}
	if got, ok := peer.FromContext(ctx); !ok || got != p {
		t.Error("peer:", got)
	}
	if method, ok := grpc.Method(ctx); !ok || method != "/a.B/C" {
		t.Error("method:", method)
	}
	if got := ctx.Value(own{}); got != "value" {
		t.Error("value of the server:", got)
	}
	over := metadata.NewIncomingContext(base, metadata.Pairs(headers...)) // as gRPC makes it
	for _, name := range []string{"traceparent", "TraceParent", "x", "none"} {
		if got, want := callctx.Header(ctx, name), callctx.Header(over, name); !slices.Equal(got, want) {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
}
