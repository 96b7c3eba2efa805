package rpc_test

import (
	"context"
	"iter"
	"runtime"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestUndeliveredItemsAreNotCounted(t *testing.T) {
	s := newService("hop", newCounter().generate)
	id, sent := "", 0
	ctx, end, err := s.hop.Begin(t.Context(), &id, "", "", func() *streamerr.Error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	o := rpc.Drive(ctx, s.hop, methods.Worker, s.engine, &workerv1.TokenRequest{Prompt: []uint32{9}}, func(*workerv1.GenerateResponse) error {
		if sent++; sent > 4 {
			return rpc.ErrUndelivered
		}
		return nil
	})
	if r := ledger.At(s.hop).Get(id); o.Reason() != streamerr.Completed || r.GetTokensOut() != 4 || sent != 10 {
		t.Error(o, r, sent)
	}
}

// TestStreamWithoutAGoroutine: Start returns, other goroutines send the items, and the outcome is
// recorded when the stream is over, even if its engine panics or exits its goroutine.
func TestStreamWithoutAGoroutine(t *testing.T) {
	for name, fails := range map[string]func(){"ends": nil, "exits": runtime.Goexit, "panics": func() { panic("unlucky") }} {
		s := newService("hop", newCounter().generate)
		id, sent := "", 0
		ctx, end, err := s.hop.Begin(t.Context(), &id, "", "", func() *streamerr.Error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		start := make(chan struct{})
		engine := func(ctx context.Context, req *workerv1.TokenRequest, to stream.Reader[*workerv1.GenerateResponse]) {
			go stream.Start(ctx, func(ctx context.Context, req *workerv1.TokenRequest, to stream.Reader[*workerv1.GenerateResponse]) {
				<-start
				if fails != nil {
					fails()
				}
				s.engine(ctx, req, to)
			}, req, to)
		}
		ended := make(chan rpc.Outcome, 1)
		rpc.Start(ctx, s.hop, methods.Worker, engine, &workerv1.TokenRequest{Prompt: []uint32{9}}, func(*stream.Loop, *workerv1.GenerateResponse) error {
			sent++
			return nil
		}, func(o rpc.Outcome) { ended <- o })
		if len(ended) > 0 || sent > 0 {
			t.Errorf("%s: %d outcomes after %d items", name, len(ended), sent)
		}
		close(start)
		o, want, items := polltest.Receive(t, "the stream ends", ended), streamerr.Completed, 10
		if fails != nil {
			want, items = streamerr.Internal, 0
		}
		if r := ledger.At(s.hop).Get(id); o.Reason() != want || streamerr.Reason(r.GetReason()) != want || sent != items {
			t.Errorf("%s: %v, %v, %d items", name, o, r, sent)
		}
		end()
	}
}

// TestEndWithAnotherReasonIsAFailure: a last message without a reason, or with a reason that this
// release does not know, fails the stream with that reason. It is not sent, and counts as no success.
func TestEndWithAnotherReasonIsAFailure(t *testing.T) {
	for sent, want := range map[streamv1.Reason]streamerr.Reason{0: streamerr.Internal, 99: streamerr.Reason(99), streamv1.Reason_REASON_DEADLINE: streamerr.Deadline} {
		s := newService("hop", stream.Push(func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
			return func(yield func(*workerv1.GenerateResponse, error) bool) {
				yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: sent, Path: []string{"engine"}}}}, nil)
			}
		}))
		id := ""
		ctx, end, err := s.hop.Begin(t.Context(), &id, "", "", func() *streamerr.Error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		o := rpc.Drive(ctx, s.hop, methods.Worker, s.engine, &workerv1.TokenRequest{Prompt: []uint32{9}}, func(m *workerv1.GenerateResponse) error {
			t.Errorf("reason %d: %v is sent", sent, m)
			return nil
		})
		end()
		if status := o.Status(); o.End != nil || o.Reason() != want || status == nil || o.Path().String() != "engine > hop" {
			t.Errorf("reason %d: %+v, status %v", sent, o, status)
		}
	}
}
