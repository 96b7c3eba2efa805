package inprocess_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	examplev1 "github.com/whence-dev/whence/idl/gen/whence/example/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/inprocess"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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
}

type engine = stream.Engine[*examplev1.Goal, *examplev1.CountResponse]

// A counter is a service with an engine. If plain is set, its method is served without package rpc.
type counter struct {
	examplev1.UnimplementedCountServer
	streamv1.UnimplementedStreamsServer
	hop    rpc.Hop
	engine engine
	plain  func(grpc.BidiStreamingServer[examplev1.CountRequest, examplev1.CountResponse]) error
}

func (c *counter) Count(st grpc.BidiStreamingServer[examplev1.CountRequest, examplev1.CountResponse]) error {
	if c.plain != nil {
		return c.plain(st)
	}
	return rpc.Serve(&c.hop, st, counting, c.engine)
}

// Why answers with the metadata of the call, and keeps the request.
func (c *counter) Why(ctx context.Context, req *streamv1.WhyRequest) (*streamv1.WhyResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-head", "h"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "t"))
	if req.GetStreamId() == "" {
		return nil, status.Error(codes.FailedPrecondition, "as asked")
	}
	req.StreamId = "changed"
	return &streamv1.WhyResponse{Hops: []*streamv1.Record{{Hop: fmt.Sprint(md.Get("x-in"), ctx.Value(key{}))}}}, nil
}

type key struct{}

func start(t *testing.T, c *counter) (conn grpc.ClientConnInterface, s *inprocess.Server) {
	t.Helper()
	c.hop.Name = "callee"
	s = inprocess.NewServer()
	examplev1.RegisterCountServer(s, c)
	streamv1.RegisterStreamsServer(s, c)
	t.Cleanup(s.Stop)
	return s.Conn(), s
}

func below(conn grpc.ClientConnInterface) engine {
	return rpc.Dial("caller", "callee", examplev1.NewCountClient(conn).Count, counting)
}

// forever yields one message repeatedly until it is stopped. stopped receives the cause.
func forever(out *examplev1.CountResponse, stopped chan<- error) engine {
	return stream.Push(func(ctx context.Context, _ *examplev1.Goal) iter.Seq2[*examplev1.CountResponse, error] {
		return func(yield func(*examplev1.CountResponse, error) bool) {
			stopping := stream.Stopping(ctx)
			for yield(out, nil) {
				select {
				case <-stopping:
					stopped <- stream.Cause(ctx)
					yield(nil, stream.Cause(ctx))
					return
				default:
				}
			}
		}
	})
}

// TestItemsAreNotCopied checks that items are not copied, and that requests are.
func TestItemsAreNotCopied(t *testing.T) {
	out, stopped := &examplev1.CountResponse{}, make(chan error, 1)
	c := &counter{engine: forever(out, stopped)}
	conn, _ := start(t, c)
	goal := &examplev1.Goal{}
	for item, err := range below(conn).Range(t.Context(), goal) {
		if err != nil || item != out {
			t.Error(item, err)
		}
		break
	}
	if goal.GetStreamId() != "" {
		t.Error("the callee has changed the caller's request")
	}
	if got := streamerr.As(<-stopped); got.Reason != streamerr.Completed || got.Path.String() != "caller" {
		t.Errorf("the engine was stopped with %v", got)
	}
	if n := c.hop.Live.Len(); n != 0 {
		t.Errorf("%d streams are live after the loop", n)
	}
}

// TestReaderThatPanicsOrExitsStopsTheEngine checks that the engine is released before the panic
// continues, and that the engine does not see the panic.
func TestReaderThatPanicsOrExitsStopsTheEngine(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("unlucky") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			stopped := make(chan error, 1)
			c := &counter{engine: forever(&examplev1.CountResponse{}, stopped)}
			conn, _ := start(t, c)
			var got any
			var reading sync.WaitGroup
			reading.Go(func() {
				defer func() { got = recover() }()
				for range below(conn).Range(t.Context(), &examplev1.Goal{}) {
					leave()
				}
			})
			reading.Wait()
			if failure, ok := got.(*stream.Failure); name == "panic" && (!ok || failure.Value != any("unlucky")) {
				t.Errorf("the reader's panic has become %v", got)
			}
			if n := c.hop.Live.Len(); n != 0 {
				t.Errorf("%d streams are live", n)
			}
			if name == "panic" {
				if e := streamerr.As(<-stopped); e.Reason != streamerr.Internal || e.Path.String() != "caller" {
					t.Errorf("the engine was stopped with %v", e)
				}
			}
		})
	}
}

// TestEngineThatPanicsEndsItsStreamAlone checks that the caller gets INTERNAL from the callee.
func TestEngineThatPanicsEndsItsStreamAlone(t *testing.T) {
	conn, _ := start(t, &counter{engine: stream.Push(func(context.Context, *examplev1.Goal) iter.Seq2[*examplev1.CountResponse, error] {
		panic("unlucky")
	})})
	for _, err := range below(conn).Range(t.Context(), &examplev1.Goal{}) {
		if e := streamerr.As(err); e.Reason != streamerr.Internal || e.Path.String() != "callee" {
			t.Error(e)
		}
	}
}

// TestServiceWithoutOurLibraryIsCalledLikeAnyOther checks that messages that a handler sends itself
// arrive, as copies.
func TestServiceWithoutOurLibraryIsCalledLikeAnyOther(t *testing.T) {
	out := &examplev1.CountResponse{Message: &examplev1.CountResponse_Number{Number: 7}}
	conn, _ := start(t, &counter{plain: func(st grpc.BidiStreamingServer[examplev1.CountRequest, examplev1.CountResponse]) error {
		if in, err := st.Recv(); err != nil || in.GetGoal().GetLast() != 3 {
			return status.Error(codes.InvalidArgument, "a goal is missing")
		}
		for range 2 {
			if err := st.Send(out); err != nil {
				return err
			}
		}
		return nil
	}})
	items := 0
	for item, err := range below(conn).Range(t.Context(), &examplev1.Goal{Last: 3}) {
		if items++; err != nil || item == out || item.GetNumber() != 7 {
			t.Error(item, err)
		}
	}
	if items != 2 {
		t.Error(items)
	}
}

func TestUnaryCallsCarryMetadataButNoValues(t *testing.T) {
	conn, _ := start(t, &counter{})
	client := streamv1.NewStreamsClient(conn)
	ctx := metadata.AppendToOutgoingContext(context.WithValue(t.Context(), key{}, "of the caller"), "x-in", "value")
	var head, tail metadata.MD
	req := &streamv1.WhyRequest{StreamId: "id"}
	resp, err := client.Why(ctx, req, grpc.Header(&head), grpc.Trailer(&tail))
	if err != nil || resp.GetHops()[0].GetHop() != "[value] <nil>" || req.GetStreamId() != "id" || len(head.Get("x-head")) != 1 || len(tail.Get("x-tail")) != 1 {
		t.Error(resp, err, req, head, tail)
	}
	if _, err := client.Why(ctx, &streamv1.WhyRequest{}); status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "as asked" {
		t.Error(err)
	}
	if _, err := client.List(ctx, &streamv1.ListRequest{}); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
	if err := conn.Invoke(ctx, "/no.Service/Method", req, resp); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// TestDeadlineOfTheCallerEndsTheHandler checks both ends of the call.
func TestDeadlineOfTheCallerEndsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		conn, _ := start(t, &counter{plain: func(st grpc.BidiStreamingServer[examplev1.CountRequest, examplev1.CountResponse]) error {
			<-st.Context().Done()
			ended <- st.Context().Err()
			return st.Context().Err()
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		st, err := examplev1.NewCountClient(conn).Count(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Recv(); status.Code(err) != codes.DeadlineExceeded {
			t.Error(err)
		}
		if err := <-ended; err == nil {
			t.Error("the handler's context is not done")
		}
	})
}

func TestStoppedServerIsALostPeer(t *testing.T) {
	begun := make(chan struct{})
	conn, s := start(t, &counter{plain: func(st grpc.BidiStreamingServer[examplev1.CountRequest, examplev1.CountResponse]) error {
		close(begun)
		_, err := st.Recv()
		for err == nil {
			_, err = st.Recv()
		}
		if errors.Is(err, io.EOF) {
			t.Error("the call was half-closed")
		}
		<-st.Context().Done()
		return nil
	}})
	go func() { <-begun; s.Stop() }()
	for _, err := range below(conn).Range(t.Context(), &examplev1.Goal{}) {
		if e := streamerr.As(err); e.Reason != streamerr.PeerLost || e.Path.String() != "callee" {
			t.Error(e)
		}
	}
	for _, err := range below(conn).Range(t.Context(), &examplev1.Goal{}) {
		if e := streamerr.As(err); e.Reason != streamerr.PeerLost || e.Path.String() != "callee" {
			t.Error(e)
		}
	}
}
