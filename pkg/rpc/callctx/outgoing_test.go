package callctx_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/whence-dev/whence/pkg/rpc/callctx"
)

func TestOutgoingHasTheHeadersThatGRPCSends(t *testing.T) {
	none := t.Context()
	added := metadata.AppendToOutgoingContext(none, "Via", "api-service", "trace", "1")
	more := metadata.AppendToOutgoingContext(added, "trace", "2")
	replaced := metadata.NewOutgoingContext(more, metadata.Pairs("other", "3", "Other", "4"))
	for name, ctx := range map[string]context.Context{
		"none": none, "added": added, "added twice": more, "replaced": replaced,
		"added to others": metadata.AppendToOutgoingContext(replaced, "via", "5"),
		"below":           context.WithoutCancel(more),
	} {
		want, _ := metadata.FromOutgoingContext(ctx)
		if got := metadata.Pairs(callctx.Outgoing(ctx)...); !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { callctx.Outgoing(added) }); n > 2 {
		t.Errorf("%v allocations: does grpc-go keep outgoing headers in another way?", n)
	}
}
