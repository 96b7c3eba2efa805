package rpc_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
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
	for _, tr := range transports {
		t.Run("by a drain, "+tr.name, func(t *testing.T) {
			endUnread(t, tr, rpc.Timers{}, 0, streamerr.Draining)
		})
	}
	for name, test := range map[string]struct {
		timers rpc.Timers
		reason streamerr.Reason
	}{
		"by a deadline": {rpc.Timers{Deadline: time.Minute}, streamerr.Deadline},
		"by a stall":    {rpc.Timers{Stall: time.Minute}, streamerr.SlowReader},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				endUnread(t, transport{"in process", serveHere, dialHere}, test.timers, time.Hour, test.reason)
			})
		})
	}
}

// endUnread opens a stream whose caller does not read, drains its hop within grace, and expects
// that the stream has ended with reason.
func endUnread(t *testing.T, tr transport, timers rpc.Timers, grace time.Duration, reason streamerr.Reason) {
	t.Helper()
	svc := newService("worker", stream.Push(flood))
	svc.hop.Timers, svc.hop.Grace = timers, 20*time.Millisecond
	st, err := workerv1.NewWorkerClient(tr.dial(t, tr.serve(t, svc))).Generate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&workerv1.GenerateRequest{Message: &workerv1.GenerateRequest_Tokens{Tokens: &workerv1.TokenRequest{Prompt: []uint32{1}, StreamId: "deaf"}}}); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the stream is live", func() bool { return svc.hop.Live.Len() == 1 })
	svc.hop.Drain(t.Context(), grace)
	if r := ledger.At(svc.hop).Get("deaf"); streamerr.Reason(r.GetReason()) != reason {
		t.Errorf("the stream has ended with %v: %s", streamerr.Reason(r.GetReason()), r.GetMessage())
	}
}
