package rpc_test

import (
	"context"
	"iter"
	"slices"
	"sync"
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An inputs is an Observer and Flow of streams whose engines got tokens tokens as input. It keeps
// the numbers that callees report.
type inputs struct {
	observer.Nobody
	tokens int
	mu     sync.Mutex
	told   []int
}

func (in *inputs) Begin(context.Context, observer.Beginning) observer.Flow { return in }

func (in *inputs) Consumed() int { return in.tokens }

func (in *inputs) Note(e observer.Event) {
	if e.Kind == observer.Consumed {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.told = append(in.told, e.Tokens)
	}
}

// untilStopped is an engine without items. It calls running when it runs.
func untilStopped[Req, Out any](running func()) stream.Engine[Req, Out] {
	return stream.Push(func(ctx context.Context, _ Req) iter.Seq2[Out, error] {
		return func(yield func(Out, error) bool) {
			running()
			<-stream.Stopping(ctx)
			var none Out
			yield(none, stream.Cause(ctx))
		}
	})
}

// TestInputOfAStoppedStreamReachesTheCaller: a callee that was stopped before its first message says
// with the ending how many tokens engines got as input.
func TestInputOfAStoppedStreamReachesTheCaller(t *testing.T) {
	for _, tr := range transports {
		for _, kind := range []string{"stream", "unary"} {
			if kind == "unary" && tr.name == "ttstream" {
				continue // unary answers of Kitex over TTHeader have no trailers
			}
			t.Run(tr.name+", "+kind, func(t *testing.T) {
				ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
				defer ctl.Release()
				var above inputs
				stop := func() { ctl.Stop(streamerr.New(streamerr.ClientGone, "gone")) }
				svc := newEmbedder("worker", untilStopped[*workerv1.EmbedRequest, *workerv1.EmbedResponse](stop))
				svc.engine = untilStopped[*workerv1.TokenRequest, *workerv1.GenerateResponse](stop)
				svc.hop = &rpc.Hop{Name: "worker", Observer: &inputs{tokens: 42}}
				cc := tr.dial(t, tr.serve(t, svc))
				ctx = observer.With(ctx, &above)
				var last error
				if kind == "unary" {
					last = lastError(ctx, embedAt(cc, "caller", "worker"), text(1)())
				} else {
					for _, err := range engineAt(cc, "caller", "worker").Range(ctx, ask(1)()) {
						last = err
					}
				}
				if streamerr.As(last).Reason != streamerr.ClientGone || !slices.Equal(above.told, []int{42}) {
					t.Errorf("the stream has ended with %v, and the callee has reported %d tokens", last, above.told)
				}
			})
		}
	}
}
