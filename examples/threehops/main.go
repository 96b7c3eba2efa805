// Command threehops shows pkg/rpc around a bidi method that is not Whence's own: a leaf on grpc-go, a middle on Kitex, and a
// caller that leaves in mid-stream. Every hop then says who ended the stream, why, and along which path.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	examplev1 "github.com/whence-dev/whence/idl/gen/whence/example/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// method tells pkg/rpc where the messages hold what it needs. It is all that a method of one's own costs.
var method = &rpc.Method[*examplev1.Goal, examplev1.CountRequest, examplev1.CountResponse]{
	Open: func(goal *examplev1.Goal) *examplev1.CountRequest {
		return &examplev1.CountRequest{Message: &examplev1.CountRequest_Goal{Goal: goal}}
	},
	Stop: func(stop *streamv1.Stop) *examplev1.CountRequest {
		return &examplev1.CountRequest{Message: &examplev1.CountRequest_Stop{Stop: stop}}
	},
	Opened:  func(in *examplev1.CountRequest) (*examplev1.Goal, bool) { return in.GetGoal(), in.GetGoal() != nil },
	Stopped: func(in *examplev1.CountRequest) (*streamv1.Stop, bool) { return in.GetStop(), in.GetStop() != nil },
	ID:      func(goal *examplev1.Goal) *string { return &goal.StreamId },
	Tokens:  func(out *examplev1.CountResponse) int { return min(int(out.GetNumber()), 1) },
	End:     func(out *examplev1.CountResponse) *streamerr.Ending { return streamerr.EndingOf(out.GetEnd()) },
}

// An engine answers goals with numbers.
type engine = stream.Engine[*examplev1.Goal, *examplev1.CountResponse]

// count is the leaf's engine: a number every 20 ms.
func count(ctx context.Context, goal *examplev1.Goal) iter.Seq2[*examplev1.CountResponse, error] {
	return func(yield func(*examplev1.CountResponse, error) bool) {
		tick := time.NewTicker(20 * time.Millisecond)
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

// service is a hop: whatever its engine is, this is how it is served.
type service struct {
	examplev1.UnimplementedCountServer
	hop    *rpc.Hop
	engine engine
}

// Count implements examplev1.CountServer.
func (s *service) Count(st grpc.BidiStreamingServer[examplev1.CountRequest, examplev1.CountResponse]) error {
	return rpc.Serve(s.hop, st, method, s.engine)
}

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "threehops:", err)
		os.Exit(1)
	}
}

// run starts both services, counts, and leaves after five numbers.
func run(out io.Writer) error {
	kitexrpc.LogTo(io.Discard)
	log := slog.New(slog.NewTextHandler(out, nil))
	below, above, err := listeners()
	if err != nil {
		return err
	}
	leaf := grpc.NewServer(grpc.Creds(connloss.Sense(insecure.NewCredentials()))) // a vanished caller is no reset
	examplev1.RegisterCountServer(leaf, &service{hop: &rpc.Hop{Name: "leaf", Log: log}, engine: count})
	middle := kitexrpc.NewServer()

	toLeaf, err := grpc.NewClient(below.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer toLeaf.Close() //nolint:errcheck // its streams have ended
	relay := rpc.Dial("middle", "leaf", examplev1.NewCountClient(toLeaf).Count, method)
	examplev1.RegisterCountServer(middle, &service{hop: &rpc.Hop{Name: "middle", Log: log}, engine: relay})

	var serving errgroup.Group
	serving.Go(func() error { return leaf.Serve(below) })
	serving.Go(func() error { return middle.Serve(above) })

	toMiddle, err := kitexrpc.Dial(above.Addr().String(), &examplev1.Count_ServiceDesc)
	if err != nil {
		return err
	}
	defer toMiddle.Close() //nolint:errcheck // its streams have ended
	err = call(out, rpc.Dial("front", "middle", examplev1.NewCountClient(toMiddle).Count, method))
	leaf.Stop()
	middle.Stop()
	return errors.Join(err, serving.Wait())
}

// call ranges over the path, and has its user leave after five numbers.
func call(out io.Writer, path engine) error {
	ctx, ctl := stream.WithControl(context.Background(), rpc.DefaultGrace)
	defer ctl.Release()
	for item, err := range path(ctx, &examplev1.Goal{Last: 1000}) {
		if err != nil {
			_, err = fmt.Fprintf(out, "front: the stream ended: %v\n", err)
			return err
		}
		if _, err := fmt.Fprintln(out, "front: got", item.GetNumber()); err != nil {
			return err
		}
		if item.GetNumber() == 5 {
			ctl.Stop(&streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user"), Message: "the user closed the tab"})
		}
	}
	return nil
}

func listeners() (below, above net.Listener, err error) {
	if below, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, nil, err
	}
	above, err = net.Listen("tcp", "127.0.0.1:0")
	return below, above, err
}
