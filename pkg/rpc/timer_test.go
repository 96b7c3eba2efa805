package rpc_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestTimersNameThemselvesAndTheirHop(t *testing.T) {
	slow := func(first, gap time.Duration) engine {
		return stream.Push(func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
			return func(yield func(*workerv1.GenerateResponse, error) bool) {
				stopping := stream.Stopping(ctx)
				for i := range req.GetPrompt()[0] {
					wait := gap
					if i == 0 {
						wait = first
					}
					select {
					case <-time.After(wait):
					case <-stopping:
						yield(nil, stream.Cause(ctx))
						return
					}
					if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{i}}}}, nil) {
						return
					}
				}
				yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
			}
		})
	}
	const long, short = time.Hour, 20 * time.Millisecond
	for name, test := range map[string]struct {
		timers     rpc.Timers
		first, gap time.Duration
		message    string
	}{
		"first token":   {rpc.Timers{FirstToken: short, Stall: long}, long, 0, "there was no token within 20ms (first-token timeout of worker)"},
		"stall":         {rpc.Timers{FirstToken: long, Stall: short}, 0, long, "there was no token for 20ms (stall timeout of worker)"},
		"deadline":      {rpc.Timers{Deadline: short, Stall: long}, 0, 2 * time.Millisecond, "the stream has taken longer than 20ms (deadline of worker)"},
		"none of these": {rpc.Timers{FirstToken: long, Stall: long}, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := newService("worker", slow(test.first, test.gap))
				svc.hop.Timers = test.timers
				var last error
				for _, err := range engineAt(dialHere(t, serveHere(t, svc)), "caller", "worker").Range(t.Context(), ask(100)()) {
					last = err
				}
				if test.message == "" {
					if last != nil {
						t.Error(last)
					}
					return
				}
				if e := streamerr.As(last); e.Reason != streamerr.Deadline || e.Path.String() != "worker" || e.Message != test.message {
					t.Error(last)
				}
			})
		})
	}
}
