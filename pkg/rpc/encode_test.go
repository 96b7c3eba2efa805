package rpc_test

import (
	"context"
	"iter"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// noText is not UTF-8: a message with noText as a string cannot be encoded.
const noText = "\xff"

// TestUnencodableAnswerIsTheFaultOfItsHop checks that the hop blames itself, and not its caller.
func TestUnencodableAnswerIsTheFaultOfItsHop(t *testing.T) {
	svc := newEmbedder("worker", stream.Unary(func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
		return &workerv1.EmbedResponse{Model: noText, End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}, nil
	}))
	svc.engine = stream.Push(func(ctx context.Context, _ *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			started := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{Model: noText}}}
			if yield(started, nil) {
				yield(nil, stream.Cause(ctx))
			}
		}
	})
	for _, tr := range wires {
		cc := tr.dial(t, tr.serve(t, svc))
		for name, call := range map[string]func(id string) error{
			"unary": func(id string) error {
				req := text(1)()
				req.StreamId = id
				return lastError(t.Context(), embedAt(cc, "caller", "worker"), req)
			},
			"bidi": func(id string) (last error) {
				req := ask(1)()
				req.StreamId = id
				for _, err := range engineAt(cc, "caller", "worker").Range(t.Context(), req) {
					last = err
				}
				return last
			},
		} {
			t.Run(name+", "+tr.name, func(t *testing.T) {
				id := stream.NewID()
				if e := streamerr.As(call(id)); e.Reason != streamerr.Internal || e.Path.String() != "worker" {
					t.Errorf("the caller got %v", e)
				}
				awaitNoLive(t, svc.hop)
				r := ledger.At(svc.hop).Get(id)
				if path := streamerr.NewPath(r.GetPath()...).String(); streamerr.Reason(r.GetReason()) != streamerr.Internal || path != "worker" {
					t.Errorf("the record has %v [%s]: %s", streamerr.Reason(r.GetReason()), path, r.GetMessage())
				}
			})
		}
	}
}

// TestUnencodableRequestIsTheFaultOfItsHop checks that the caller does not blame its peer.
func TestUnencodableRequestIsTheFaultOfItsHop(t *testing.T) {
	for _, tr := range wires {
		svc := newEmbedder("worker", stream.Unary(newCounter().vectors))
		cc := tr.dial(t, tr.serve(t, svc))
		bad := text(1)()
		bad.Model = noText
		if e := streamerr.As(lastError(t.Context(), embedAt(cc, "caller", "worker"), bad)); e.Reason != streamerr.Internal || len(e.Path) != 0 {
			t.Errorf("unary, %s: %v", tr.name, e)
		}
		if tr.name == "ttstream" {
			continue // Kitex's client sets a stream's callback without a lock, which races with the close of a connection without frames
		}
		hop := &rpc.Hop{Name: "caller"}
		req, id := ask(1)(), ""
		req.Model = noText
		ctx, end, err := hop.Begin(t.Context(), &id, "", "", func() *streamerr.Error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range engineAt(cc, "caller", "worker").Range(ctx, req) {
			if e := streamerr.As(err); e.Reason != streamerr.Internal || len(e.Path) != 0 {
				t.Errorf("bidi, %s: %v", tr.name, e)
			}
		}
		end()
	}
}
