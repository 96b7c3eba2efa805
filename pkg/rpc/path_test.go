package rpc_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestStopCrossesThreeHopsWithItsCause runs edge -> chat (Kitex, in process, or TTHeader Streaming)
// -> worker (grpc-go), as the services do.
func TestStopCrossesThreeHopsWithItsCause(t *testing.T) {
	leaf := newCounter()
	worker := patient(newService("worker", leaf.generate))
	chat := patient(newService("chat", engineAt(dialGRPC(t, serveGRPC(t, worker)), "chat", "worker")))
	edges := []engine{engineAt(dialKitex(t, serveKitex(t, chat)), "edge", "chat"), engineAt(dialHere(t, serveHere(t, chat)), "edge", "chat"), engineAt(dialTTStream(t, serveKitex(t, chat)), "edge", "chat")}
	for i := range 99 {
		edge := edges[i%len(edges)]
		ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
		gone := &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client"), Message: "closed its connection"}
		n := 0
		for _, err := range edge.Range(ctx, ask(1<<30)()) {
			if err != nil {
				if !errors.Is(err, streamerr.ClientGone) {
					t.Fatal(err)
				}
				break
			}
			if n++; n == 2 {
				ctl.Stop(gone)
			}
		}
		got := streamerr.As(<-leaf.causes)
		if got.Reason != streamerr.ClientGone || got.Path.String() != "client > edge > chat" || got.Message != gone.Message {
			t.Fatalf("the leaf was stopped with %v", got)
		}
		ctl.Release()
	}
}

func TestFailureCrossesThreeHopsWithItsPath(t *testing.T) {
	worker := newService("worker", newCounter().generate)
	chat := newService("chat", engineAt(dialGRPC(t, serveGRPC(t, worker)), "chat", "worker"))
	edges := []engine{engineAt(dialKitex(t, serveKitex(t, chat)), "edge", "chat"), engineAt(dialHere(t, serveHere(t, chat)), "edge", "chat"), engineAt(dialTTStream(t, serveKitex(t, chat)), "edge", "chat")}
	for n, want := range map[uint32]struct {
		reason  streamerr.Reason
		message string
		param   string
	}{
		0:  {streamerr.Invalid, "prompt must not be 0", "prompt"},
		42: {streamerr.EngineFailed, "out of luck", ""},
		13: {streamerr.Internal, "a bug in worker ended this stream; its log has the details", ""},
	} {
		for i, edge := range edges {
			var last error
			for _, err := range edge.Range(t.Context(), ask(n)()) {
				last = err
			}
			e := streamerr.As(last)
			if e.Reason != want.reason || e.Path.String() != "worker > chat" || e.Message != want.message || e.Param != want.param {
				t.Errorf("edge %d, prompt %d: %v (param %q)", i, n, e, e.Param)
			}
		}
	}
}

func TestCompletedStreamNamesItsPath(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	for _, tr := range transports {
		var end *llmv1.End
		for out, err := range engineAt(tr.dial(t, tr.serve(t, svc)), "caller", "worker").Range(t.Context(), ask(2)()) {
			if err != nil {
				t.Fatal(err)
			}
			end = out.GetEnd()
		}
		if got := streamerr.NewPath(end.GetPath()...).String(); got != "engine > worker" {
			t.Errorf("%s: %s", tr.name, got)
		}
	}
}

func TestPlainGRPCClientGetsCodeReasonAndPath(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			client := workerv1.NewWorkerClient(tr.dial(t, tr.serve(t, svc)))
			st, err := client.Generate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Send(methods.Worker.Open(ask(42)())); err != nil {
				t.Fatal(err)
			}
			if err := st.CloseSend(); err != nil { // a half-close does not cancel the call
				t.Fatal(err)
			}
			for err == nil {
				_, err = st.Recv()
			}
			if status.Code(err) != codes.Internal || status.Convert(err).Message() != "out of luck" {
				t.Error(err)
			}
			e := streamerr.FromGRPC("worker", err)
			if e.Reason != streamerr.EngineFailed || e.Path.String() != "worker" {
				t.Error(e)
			}
			reason, path := st.Trailer().Get(streamerr.ReasonTrailer), st.Trailer().Get(streamerr.PathTrailer)
			if len(reason) != 1 || reason[0] != "engine_failed" || len(path) != 1 || path[0] != "worker" {
				t.Error(st.Trailer())
			}
		})
	}
}

func TestBareResetStopsTheEngineAndNamesThePeer(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			leaf := newCounter()
			svc := newService("worker", leaf.generate)
			client := workerv1.NewWorkerClient(tr.dial(t, tr.serve(t, svc)))
			ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), streamerr.ViaHeader, "client > gateway"))
			st, err := client.Generate(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Send(methods.Worker.Open(ask(1 << 30)())); err != nil {
				t.Fatal(err)
			}
			if _, err := st.Recv(); err != nil {
				t.Fatal(err)
			}
			cancel()
			for err == nil {
				_, err = st.Recv()
			}
			got := streamerr.As(<-leaf.causes)
			if got.Reason != streamerr.PeerReset || got.Path.String() != "gateway" {
				t.Error(got)
			}
		})
	}
}

// TestCauseOfAResetCrossesThreeTransports has a caller over TTHeader Streaming, whose resets carry
// causes, a hop behind Kitex's gRPC, and a hop behind grpc-go.
func TestCauseOfAResetCrossesThreeTransports(t *testing.T) {
	leaf := newCounter()
	worker := patient(newService("worker", leaf.generate))
	chat := patient(newService("chat", engineAt(dialGRPC(t, serveGRPC(t, worker)), "chat", "worker")))
	front := patient(newService("front", engineAt(dialKitex(t, serveKitex(t, chat)), "front", "chat")))
	cc, err := ttrpc.Dial("shop", serveKitex(t, front), &workerv1.Worker_ServiceDesc)
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	for why, want := range map[error]string{
		errors.New("sold out"): "user stop: sold out [shop > front > chat]",
		&streamerr.Error{Reason: streamerr.OperatorStop, Path: streamerr.NewPath("operator"), Message: "closed"}: "operator stop: closed [operator > shop > front > chat]",
		nil: "peer reset: the caller canceled the stream without a cause [shop > front > chat]",
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		st, err := workerv1.NewWorkerClient(cc).Generate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Send(methods.Worker.Open(ask(1 << 30)())); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Recv(); err != nil {
			t.Fatal(err)
		}
		cancel(why)
		for err == nil {
			_, err = st.Recv()
		}
		if got := streamerr.As(<-leaf.causes).Error(); got != want {
			t.Errorf("the leaf was stopped with %q, want %q", got, want)
		}
	}
}
