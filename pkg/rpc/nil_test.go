package rpc_test

import (
	"context"
	"iter"
	"reflect"
	"testing"

	"google.golang.org/grpc"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

type method = rpc.Method[*workerv1.TokenRequest, workerv1.GenerateRequest, workerv1.GenerateResponse]

// serveMethod serves a counter through m, on a hop without a log.
func serveMethod(t *testing.T, m *method, engine engine, over func(testing.TB, workerv1.WorkerServer) string) (addr string, hop *rpc.Hop) {
	t.Helper()
	h, err := metrics.New("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(context.Background()) })
	hop = &rpc.Hop{Name: "worker", Observer: &ledger.Ledger{Metrics: h.Hop("worker", "juggling")}}
	serve := func(hop *rpc.Hop, st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
		return rpc.Serve(hop, st, m, engine)
	}
	return over(t, &service{hop: hop, serve: serve}), hop
}

// run ranges over e within a bounded time. It stops the stream after stopAfter items, or never if
// stopAfter is 0.
func run(t *testing.T, e engine, n uint32, stopAfter int) (items int, last error) {
	t.Helper()
	ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
	defer ctl.Release()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for _, err := range e.Range(ctx, ask(n)()) {
			if last = err; err != nil {
				return
			}
			if items++; items == stopAfter {
				ctl.Stop(streamerr.New(streamerr.UserStop, "enough"))
			}
		}
	}()
	polltest.Receive(t, "the stream ends", over)
	return items, last
}

// TestZeroFieldsWork leaves out each field of a Method, and all fields, on both sides. No stream
// crashes or hangs: a stream completes or is refused with a reason, and it can be stopped.
func TestZeroFieldsWork(t *testing.T) {
	refused := map[string]bool{"Open": true, "Opened": true, "all": true} // the method wraps its requests
	fields := []string{"none", "all"}
	for f := range reflect.TypeFor[method]().Fields() {
		fields = append(fields, f.Name)
	}
	for _, field := range fields {
		t.Run(field, func(t *testing.T) {
			m := *methods.Worker
			m.Operation = "juggling"
			if field == "all" {
				m = method{}
			} else if field != "none" {
				reflect.ValueOf(&m).Elem().FieldByName(field).SetZero()
			}
			for _, tr := range perServer { // one transport per kind of server
				addr, _ := serveMethod(t, &m, newCounter().generate, tr.serve)
				e := rpc.Dial("caller", "worker", workerv1.NewWorkerClient(tr.dial(t, addr)).Generate, &m)
				switch items, err := run(t, e, 5, 0); {
				case refused[field] && err == nil, !refused[field] && (err != nil || items != 6):
					t.Errorf("%s: %d items, %v", tr.name, items, err)
				}
				if refused[field] {
					continue
				}
				if _, err := run(t, e, 1<<30, 3); streamerr.As(err).Reason != streamerr.UserStop {
					t.Errorf("%s: a stopped stream ends with %v", tr.name, err)
				}
			}
		})
	}
}

// TestMethodWithoutAnEndingCompletesWithItsEngine: the messages of such a method have no room for
// an End.
func TestMethodWithoutAnEndingCompletesWithItsEngine(t *testing.T) {
	m := *methods.Worker
	m.End = nil
	engine := stream.Push(func(_ context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for range req.GetPrompt()[0] {
				if !yield(&workerv1.GenerateResponse{}, nil) {
					return
				}
			}
		}
	})
	for _, tr := range transports {
		addr, hop := serveMethod(t, &m, engine, tr.serve)
		items, err := run(t, rpc.Dial("caller", "worker", workerv1.NewWorkerClient(tr.dial(t, addr)).Generate, &m), 7, 0)
		if err != nil || items != 7 {
			t.Errorf("%s: %d items, %v", tr.name, items, err)
		}
		for _, r := range ledger.At(hop).Ended(10, func(*streamv1.Record) bool { return true }) {
			if streamerr.Reason(r.GetReason()) != streamerr.Completed {
				t.Errorf("%s: the record has %v", tr.name, r)
			}
		}
	}
}

// TestUnaryMethodWithoutFieldsWorks uses a method that has no id and cannot send a Stop.
func TestUnaryMethodWithoutFieldsWorks(t *testing.T) {
	for _, tr := range perServer {
		ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
		leaf := newCounter()
		svc := &zeroEmbedder{embedder: newEmbedder("worker", func(ctx context.Context, req *workerv1.EmbedRequest, to stream.Reader[*workerv1.EmbedResponse]) {
			if req.GetInputs()[0].GetIds()[0] > 1 {
				ctl.Stop(streamerr.New(streamerr.UserStop, "enough"))
			}
			leaf.embed(ctx, req, to)
		})}
		svc.hop.Log = nil
		client := workerv1.NewWorkerClient(tr.dial(t, tr.serve(t, svc)))
		e := rpc.DialUnary[*workerv1.EmbedRequest, workerv1.EmbedRequest]("caller", "worker", client.Embed, nil, nil)
		if err := lastError(t.Context(), e, text(1)()); err != nil {
			t.Errorf("%s: %v", tr.name, err)
		}
		if err := lastError(ctx, e, text(1<<30)()); streamerr.As(err).Reason != streamerr.UserStop {
			t.Errorf("%s: a stopped call ends with %v", tr.name, err)
		}
		ctl.Release()
	}
}

// A zeroEmbedder serves Embed through a nil Method.
type zeroEmbedder struct{ *embedder }

func (s *zeroEmbedder) Embed(ctx context.Context, req *workerv1.EmbedRequest) (resp *workerv1.EmbedResponse, err error) {
	var none *rpc.Method[*workerv1.EmbedRequest, workerv1.EmbedRequest, workerv1.EmbedResponse]
	err = rpc.ServeUnary(ctx, s.hop, none, s.embed, req, func(out *workerv1.EmbedResponse) { resp = out })
	return resp, err
}
