package rpc_test

import (
	"context"
	"iter"
	"testing"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// flood yields items, each larger than what a caller may leave unread, until the loop is left.
func flood(_ context.Context, _ *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		item := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: make([]uint32, 1<<20)}}}
		for yield(item, nil) {
		}
	}
}

// TestCallerThatDoesNotReadIsNotWaitedFor: what is sent to it waits for it, and its stream ends all the same.
func TestCallerThatDoesNotReadIsNotWaitedFor(t *testing.T) {
	const stall = 20 * time.Millisecond
	for name, test := range map[string]struct {
		timers rpc.Timers
		end    func(h *rpc.Hop)
		reason streamerr.Reason
	}{
		"by a drain":    {rpc.Timers{}, func(h *rpc.Hop) { h.Drain(context.Background(), time.Millisecond) }, streamerr.Draining},
		"by a deadline": {rpc.Timers{Deadline: stall}, func(h *rpc.Hop) { h.Drain(context.Background(), time.Hour) }, streamerr.Deadline},
		"by a stall":    {rpc.Timers{Stall: stall}, func(h *rpc.Hop) { h.Drain(context.Background(), time.Hour) }, streamerr.SlowReader},
	} {
		over := transports
		if test.timers != (rpc.Timers{}) {
			over = over[:1] // timers know no transports
		}
		for _, tr := range over {
			t.Run(name+", "+tr.name, func(t *testing.T) {
				svc := newService("worker", flood)
				svc.hop.Timers = test.timers
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				st, err := workerv1.NewWorkerClient(tr.dial(t, tr.serve(t, svc))).Generate(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if err := st.Send(&workerv1.GenerateRequest{Message: &workerv1.GenerateRequest_Tokens{Tokens: &workerv1.TokenRequest{Prompt: []uint32{1}, StreamId: "deaf"}}}); err != nil {
					t.Fatal(err)
				}
				if _, err := st.Recv(); err != nil {
					t.Fatal(err)
				}
				ended := make(chan struct{})
				go func() { test.end(svc.hop); close(ended) }()
				select {
				case <-ended:
				case <-time.After(10 * time.Second):
					t.Error("a caller that does not read is waited for")
					cancel()
					<-ended
				}
				if r := svc.hop.Ledger.Get("deaf"); streamerr.Reason(r.GetReason()) != test.reason {
					t.Errorf("the stream has ended with %v: %s", streamerr.Reason(r.GetReason()), r.GetMessage())
				}
			})
		}
	}
}
