package rpc_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
)

// An endlessCall service sends its End, but never ends the call.
type endlessCall struct {
	workerv1.UnimplementedWorkerServer
}

func (endlessCall) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	if _, err := st.Recv(); err != nil {
		return err
	}
	end := &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_STOP}
	if err := st.Send(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: end}}); err != nil {
		return err
	}
	<-st.Context().Done()
	return st.Context().Err()
}

// A watchedStream calls onEnd when the End has arrived.
type watchedStream struct {
	grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse]
	onEnd func()
}

func (w watchedStream) Recv() (*workerv1.GenerateResponse, error) {
	out, err := w.BidiStreamingClient.Recv()
	if out.GetEnd() != nil {
		w.onEnd()
	}
	return out, err
}

// TestEndIsTheEnding: a peer that is lost, or slow to end the call, after its End does not make the
// stream a failure.
func TestEndIsTheEnding(t *testing.T) {
	for _, tr := range wires {
		for name, lost := range map[string]bool{"slow": false, "lost": true} {
			t.Run(tr.name+" "+name, func(t *testing.T) {
				at, kill := relayTo(t, tr.serve(t, endlessCall{}))
				client := workerv1.NewWorkerClient(tr.dial(t, at))
				open := func(ctx context.Context, opts ...grpc.CallOption) (grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse], error) {
					st, err := client.Generate(ctx, opts...)
					return watchedStream{st, func() {
						if lost {
							kill()
						}
					}}, err
				}
				ctx, ctl := stream.WithControl(t.Context(), 20*time.Millisecond)
				defer ctl.Release()
				completed := false
				for out, err := range rpc.Dial("self", "peer", open, methods.Worker).Range(ctx, ask(1)()) {
					if err != nil {
						t.Fatal(err)
					}
					completed = out.GetEnd().GetFinish() == llmv1.Finish_FINISH_STOP
				}
				if !completed {
					t.Error("the stream had no End")
				}
			})
		}
	}
}
