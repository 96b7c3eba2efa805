package rpc_test

import (
	"testing"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestStopFromOutsideCannotComplete: the hop above would hear no End, and take the peer for lost.
func TestStopFromOutsideCannotComplete(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	path := rpc.Dial("front", "worker", workerv1.NewWorkerClient(dialGRPC(t, serveGRPC(t, svc))).Generate, rpc.Worker)
	ctx, ctl := stream.WithControl(t.Context(), rpc.DefaultGrace)
	defer ctl.Release()
	req := ask(1 << 30)()
	req.StreamId = "outside"
	var last error
	asked := false
	for _, err := range path(ctx, req) {
		if last = err; err != nil || asked {
			continue
		}
		asked = true
		_, err := svc.hop.Stop(ctx, &streamv1.StopStreamRequest{StreamId: "outside", Stop: &streamv1.Stop{Reason: streamv1.Reason_REASON_COMPLETED}})
		if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != "stop.reason" {
			t.Errorf("the stop: %v", err)
		}
		if _, err := svc.hop.Stop(ctx, &streamv1.StopStreamRequest{StreamId: "outside"}); err != nil {
			t.Error(err)
		}
	}
	if e := streamerr.As(last); e.Reason != streamerr.OperatorStop || e.Path.Origin() != "operator" {
		t.Error(last)
	}
}
