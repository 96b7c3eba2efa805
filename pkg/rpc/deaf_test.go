package rpc_test

import (
	"context"
	"iter"
	"testing"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A flood yields items until its loop is left. Each item is larger than the number of bytes that a
// caller may leave unread.
func flood(_ context.Context, _ *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		item := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: make([]uint32, 1<<20)}}}
		for yield(item, nil) {
		}
	}
}

// TestStalledCallerDoesNotDelayTheEnding: items for a caller that does not read wait in the call,
// and its stream ends all the same.
func TestStalledCallerDoesNotDelayTheEnding(t *testing.T) {
	// The caller reads nothing, so the first item is never delivered, and a timer can fire at any
	// time. The stall must only leave a busy machine the time between the first item's arrival and
	// its sending.
	const stall = 500 * time.Millisecond
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
			over = over[:1] // timers do not depend on the transport
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
				for svc.hop.Live.Len() == 0 {
					time.Sleep(time.Millisecond)
				}
				ended := make(chan struct{})
				go func() { test.end(svc.hop); close(ended) }()
				select {
				case <-ended:
				case <-time.After(time.Minute):
					t.Error("the stream waits for a caller that does not read")
					cancel()
					<-ended
				}
				if r := ledger.At(svc.hop).Get("deaf"); streamerr.Reason(r.GetReason()) != test.reason {
					t.Errorf("the stream has ended with %v: %s", streamerr.Reason(r.GetReason()), r.GetMessage())
				}
			})
		}
	}
}
