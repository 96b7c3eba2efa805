package rpc_test

import (
	"context"
	"fmt"
	"iter"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	examplev1 "github.com/whence-dev/whence/idl/gen/whence/example/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// counting describes the messages of Count to package rpc.
var counting = &rpc.Method[*examplev1.Goal, examplev1.CountRequest, examplev1.CountResponse]{
	Open: func(goal *examplev1.Goal) *examplev1.CountRequest {
		return &examplev1.CountRequest{Message: &examplev1.CountRequest_Goal{Goal: goal}}
	},
	Opened: func(in *examplev1.CountRequest) (*examplev1.Goal, bool) { return in.GetGoal(), in.GetGoal() != nil },
	Stop: func(stop *streamv1.Stop) *examplev1.CountRequest {
		return &examplev1.CountRequest{Message: &examplev1.CountRequest_Stop{Stop: stop}}
	},
	Stopped: func(in *examplev1.CountRequest) (*streamv1.Stop, bool) { return in.GetStop(), in.GetStop() != nil },
	End:     func(out *examplev1.CountResponse) *streamerr.Ending { return streamerr.EndingOf(out.GetEnd()) },
}

// numbers is the engine of the service, written as a loop. When it is stopped, it prints the cause.
func numbers(ctx context.Context, goal *examplev1.Goal) iter.Seq2[*examplev1.CountResponse, error] {
	return func(yield func(*examplev1.CountResponse, error) bool) {
		for n := range goal.GetLast() {
			if !yield(&examplev1.CountResponse{Message: &examplev1.CountResponse_Number{Number: n + 1}}, nil) {
				return
			}
		}
		<-stream.Stopping(ctx)
		fmt.Println("the service was stopped:", stream.Cause(ctx))
		yield(nil, stream.Cause(ctx))
	}
}

// countServer is the service. Its only method serves the engine.
type countServer struct {
	examplev1.UnimplementedCountServer
	hop *rpc.Hop
}

func (s *countServer) Count(st grpc.BidiStreamingServer[examplev1.CountRequest, examplev1.CountResponse]) error {
	return rpc.Serve(s.hop, st, counting, stream.Push(numbers))
}

// A stop crosses the process boundary with its cause, and the ending returns with its path.
func Example() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	examplev1.RegisterCountServer(server, &countServer{hop: &rpc.Hop{Name: "counter"}})
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}

	engine := rpc.Dial("front", "counter", examplev1.NewCountClient(conn).Count, counting)
	ctx, control := stream.WithControl(context.Background(), rpc.DefaultGrace)
	for item, err := range engine.Range(ctx, &examplev1.Goal{Last: 2}) {
		if err != nil {
			fmt.Println("the stream ended:", err)
			break
		}
		fmt.Println("got", item.GetNumber())
		if item.GetNumber() == 2 {
			control.Stop(&streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user"), Message: "the user closed the tab"})
		}
	}
	control.Release()

	_ = conn.Close()
	server.Stop()
	<-served
	// Output:
	// got 1
	// got 2
	// the service was stopped: client gone: the user closed the tab [user > front]
	// the stream ended: client gone: the user closed the tab [user]
}
