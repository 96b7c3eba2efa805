package main

import (
	"context"
	"fmt"
	"iter"
	"time"

	"google.golang.org/grpc"

	examplev1 "github.com/whence-dev/whence/idl/gen/whence/example/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// counting tells package rpc which fields of Count's messages to use. A method of your own needs
// nothing else.
var counting = &rpc.Method[*examplev1.Goal, examplev1.CountRequest, examplev1.CountResponse]{
	Open: func(goal *examplev1.Goal) *examplev1.CountRequest {
		return &examplev1.CountRequest{Message: &examplev1.CountRequest_Goal{Goal: goal}}
	},
	Opened: func(in *examplev1.CountRequest) (*examplev1.Goal, bool) { return in.GetGoal(), in.GetGoal() != nil },
	Stop: func(stop *streamv1.Stop) *examplev1.CountRequest {
		return &examplev1.CountRequest{Message: &examplev1.CountRequest_Stop{Stop: stop}}
	},
	Stopped: func(in *examplev1.CountRequest) (*streamv1.Stop, bool) { return in.GetStop(), in.GetStop() != nil },
	ID:      func(goal *examplev1.Goal) *string { return &goal.StreamId },
	Tokens:  func(out *examplev1.CountResponse) int { return min(int(out.GetNumber()), 1) },
	End:     func(out *examplev1.CountResponse) *streamerr.Ending { return streamerr.EndingOf(out.GetEnd()) },
}

// A counter is an engine that answers goals with numbers.
type counter = stream.Engine[*examplev1.Goal, *examplev1.CountResponse]

// pace is the time between two items of the leaf.
const pace = 20 * time.Millisecond

// count is the leaf's engine, written as a loop: it sends one number per pace.
func count(ctx context.Context, goal *examplev1.Goal) iter.Seq2[*examplev1.CountResponse, error] {
	return func(yield func(*examplev1.CountResponse, error) bool) {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		stopping := stream.Stopping(ctx)
		for n := range goal.GetLast() {
			select {
			case <-tick.C:
			case <-stopping:
				yield(nil, stream.Cause(ctx))
				return
			}
			if !yield(&examplev1.CountResponse{Message: &examplev1.CountResponse_Number{Number: n + 1}}, nil) {
				return
			}
		}
		yield(&examplev1.CountResponse{Message: &examplev1.CountResponse_End{End: &streamv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
	}
}

// A countServer serves the engine of a hop: the leaf's own, or that of the hop below.
type countServer struct {
	examplev1.UnimplementedCountServer
	hop    *rpc.Hop
	engine counter
}

// Count implements examplev1.CountServer.
func (s *countServer) Count(st grpc.BidiStreamingServer[examplev1.CountRequest, examplev1.CountResponse]) error {
	return rpc.Serve(s.hop, st, counting, s.engine)
}

// countBelow returns the engine of the hop named peer.
func countBelow(self, peer string, cc grpc.ClientConnInterface) counter {
	return rpc.Dial(self, peer, examplev1.NewCountClient(cc).Count, counting)
}

func goal(last uint32) *examplev1.Goal { return &examplev1.Goal{Last: last} }

func number(out *examplev1.CountResponse) string { return fmt.Sprint("number ", out.GetNumber()) }
