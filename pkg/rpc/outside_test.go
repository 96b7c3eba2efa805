package rpc_test

import (
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestStopFromOutsideCannotComplete: without an End, the hop above would regard the peer as lost.
func TestStopFromOutsideCannotComplete(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	path := rpc.Dial("front", "worker", workerv1.NewWorkerClient(dialGRPC(t, serveGRPC(t, svc))).Generate, methods.Worker)
	ctx, ctl := stream.WithControl(t.Context(), rpc.DefaultGrace)
	defer ctl.Release()
	req := ask(1 << 30)()
	req.StreamId = "outside"
	var last error
	asked := false
	for _, err := range path.Range(ctx, req) {
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

// TestStopFromOutsideNamesOwners checks that a Stop with owners stops only streams of these owners,
// and reveals nothing about other streams.
func TestStopFromOutsideNamesOwners(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	path := rpc.Dial("front", "worker", workerv1.NewWorkerClient(dialGRPC(t, serveGRPC(t, svc))).Generate, methods.Worker)
	ctx, ctl := stream.WithControl(t.Context(), rpc.DefaultGrace)
	defer ctl.Release()
	req := ask(1 << 30)()
	req.StreamId, req.Claim = "owned", &llmv1.Claim{Owner: "me"}
	stop := func(id string, owners ...string) error {
		_, err := svc.hop.Stop(ctx, &streamv1.StopStreamRequest{StreamId: id, Owners: owners})
		return err
	}
	foreign := func() {
		for _, owners := range [][]string{{"you"}, {""}} {
			if got, none := stop("owned", owners...), stop("other", owners...); got == nil || strings.ReplaceAll(got.Error(), "owned", "other") != none.Error() {
				t.Errorf("the error for owners %q reveals that the stream exists: %v; for a stream that does not exist: %v", owners, got, none)
			}
		}
	}
	stopped := false
	for _, err := range path.Range(ctx, req) {
		if err != nil || stopped {
			continue
		}
		stopped = true
		foreign()
		if r := ledger.At(svc.hop).Get("owned"); !ledger.OwnedBy(r, "you", "me") || ledger.OwnedBy(r, "you") || !ledger.OwnedBy(r) || ledger.OwnedBy(&streamv1.Record{}, "") {
			t.Errorf("the record has the owner %q", r.GetOwner())
		}
		if err := stop("owned", "you", "me"); err != nil {
			t.Error(err)
		}
	}
	foreign()
	if err := stop("owned", "me"); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("the owner got: %v", err)
	}
}
