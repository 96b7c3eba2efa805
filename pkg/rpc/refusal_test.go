package rpc_test

import (
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestUnknownMethodsAreUnimplemented(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	for _, tr := range perServer {
		cc := tr.dial(t, tr.serve(t, svc))
		for _, method := range []string{"/whence.worker.v1.Worker/Nope", "/whence.worker.v1.Nope/Generate", "/other.Worker/Generate"} {
			err := cc.Invoke(t.Context(), method, &workerv1.InfoRequest{}, &llmv1.WorkerInfo{})
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("%s %s: %v", tr.name, method, err)
			}
		}
	}
}

func TestWrongFirstMessageAndSecondRequestAreRefused(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			client := workerv1.NewWorkerClient(tr.dial(t, tr.serve(t, svc)))
			for name, messages := range map[string][]*workerv1.GenerateRequest{
				"stop first":     {methods.Worker.Stop(&streamv1.Stop{})},
				"empty":          {{}},
				"second request": {methods.Worker.Open(ask(1 << 30)()), methods.Worker.Open(ask(1)())},
				"bad id":         {methods.Worker.Open(&workerv1.TokenRequest{StreamId: "no spaces", Prompt: []uint32{1}})},
			} {
				st, err := client.Generate(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range messages {
					_ = st.Send(m)
				}
				for err == nil {
					_, err = st.Recv()
				}
				if status.Code(err) != codes.InvalidArgument {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

func TestMessageOverTheLimitIsRefusedAndTheServerContinues(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	for _, tr := range wires {
		t.Run(tr.name, func(t *testing.T) {
			client := workerv1.NewWorkerClient(tr.dial(t, tr.serve(t, svc)))
			st, err := client.Generate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = st.Send(methods.Worker.Open(&workerv1.TokenRequest{StreamId: string(make([]byte, 5<<20))}))
			for err == nil {
				_, err = st.Recv()
			}
			if status.Code(err) == codes.OK || errors.Is(err, io.EOF) {
				t.Error(err)
			}
			n := 0
			for _, err := range rpc.Dial("caller", "worker", client.Generate, methods.Worker).Range(t.Context(), ask(3)()) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != 4 {
				t.Error(n)
			}
		})
	}
}

func TestMissingPeerIsPeerLost(t *testing.T) {
	ln := listen(t)
	addr := ln.Addr().String()
	_ = ln.Close()
	for _, dial := range []func(testing.TB, string) grpc.ClientConnInterface{dialGRPC, dialKitex, dialLink} {
		var last error
		for _, err := range engineAt(dial(t, addr), "caller", "worker").Range(t.Context(), ask(3)()) {
			last = err
		}
		if e := streamerr.As(last); e.Reason != streamerr.PeerLost || e.Path.String() != "worker" {
			t.Error(e)
		}
	}
}
