package rpc_test

import (
	"context"
	"iter"
	"slices"
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestMessageOfACalleeThatIsTooLongIsInternal: another attempt would end in the same way, so it must
// not read as an overload, whichever end and transport refuses the message.
func TestMessageOfACalleeThatIsTooLongIsInternal(t *testing.T) {
	for _, tr := range wires {
		t.Run(tr.name, func(t *testing.T) {
			svc := newService("worker", stream.Push(func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
				return func(yield func(*workerv1.GenerateResponse, error) bool) {
					long := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: slices.Repeat([]uint32{1 << 31}, 1<<20+1<<10)}}}
					if yield(oneToken(), nil) {
						yield(long, nil)
					}
				}
			}))
			var last error
			for _, err := range engineAt(tr.dial(t, tr.serve(t, svc)), "caller", "worker").Range(t.Context(), ask(5)()) {
				last = err
			}
			if e := streamerr.As(last); e.Reason != streamerr.Internal {
				t.Error(e)
			}
		})
	}
}
