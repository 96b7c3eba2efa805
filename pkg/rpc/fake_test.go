package rpc_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A fakeClient is a call without a network. Its callee ends the call when it gets a Stop.
type fakeClient struct {
	grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse]
	opened chan struct{}
	stops  chan *streamv1.Stop
}

func (c fakeClient) Send(m *workerv1.GenerateRequest) error {
	if m.GetStop() != nil {
		c.stops <- m.GetStop()
	} else {
		close(c.opened)
	}
	return nil
}

func (c fakeClient) CloseSend() error { close(c.stops); return nil }

func (c fakeClient) Recv() (*workerv1.GenerateResponse, error) {
	for len(c.stops) == 0 {
		time.Sleep(time.Millisecond)
	}
	return nil, io.EOF
}

func (fakeClient) Trailer() metadata.MD { return nil }

// TestPartOfAStreamHasNoMoreTimeThanItsHop: an attempt or a choice has a Control of its own, with a
// full grace, but is bounded by the hop's grace.
func TestPartOfAStreamHasNoMoreTimeThanItsHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hop, id := &rpc.Hop{Name: "chat"}, "part"
		ctx, end, err := hop.Begin(context.Background(), &id, "", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		part, ctl := stream.WithControl(ctx, rpc.DefaultGrace)
		defer ctl.Release()
		call := fakeClient{opened: make(chan struct{}), stops: make(chan *streamv1.Stop, 1)}
		open := func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse], error) {
			return call, nil
		}
		go func() {
			<-call.opened
			time.Sleep(10 * time.Millisecond)
			stream.ControlOf(ctx).StopWithin(streamerr.UserStop, 80*time.Millisecond)
		}()
		for range rpc.Dial("chat", "worker", open, methods.Worker).Range(part, ask(1)()) {
		}
		if got := (<-call.stops).GetGrace().AsDuration(); got != 70*time.Millisecond {
			t.Errorf("the callee got a grace of %v, of at most 80ms", got)
		}
	})
}

// TestStopFromOutsideBringsItsBudget checks that the unary Stop limits the stream like the Stop of
// a call.
func TestStopFromOutsideBringsItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for sent, want := range map[time.Duration]time.Duration{
			100 * time.Millisecond: 100 * time.Millisecond,
			0:                      rpc.DefaultGrace,
			time.Hour:              rpc.DefaultGrace,
		} {
			hop, id := &rpc.Hop{Name: "worker"}, "outside"
			ctx, end, err := hop.Begin(context.Background(), &id, "", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			stop := &streamv1.StopStreamRequest{StreamId: id, Stop: &streamv1.Stop{Grace: durationpb.New(sent)}}
			if _, err := hop.Stop(context.Background(), stop); err != nil {
				t.Error(err)
			}
			if got := stream.ControlOf(ctx).Grace(); got != want {
				t.Errorf("a Stop with %v gives the stream %v, want %v", sent, got, want)
			}
			end()
		}
	})
}

// TestPanicBeforeTheCallIsOpenReachesTheReader: the loop gets the panic's own value, with its stack.
func TestPanicBeforeTheCallIsOpenReachesTheReader(t *testing.T) {
	open := func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse], error) {
		panic("unlucky")
	}
	defer func() {
		v := recover()
		if failure, ok := v.(*stream.Failure); !ok || failure.Value != any("unlucky") {
			t.Errorf("the panic has become %v", v)
		}
	}()
	for range rpc.Dial("chat", "worker", open, methods.Worker).Range(t.Context(), ask(1)()) {
	}
}

// A fakeServer is a call without a network. Its Send blocks until the handler has set the trailers.
type fakeServer struct {
	grpc.ServerStream
	ctx      context.Context //nolint:containedctx // the call's
	requests chan *workerv1.GenerateRequest
	trailers chan metadata.MD
	over     chan struct{}
}

func newFakeServer(t *testing.T, id string) fakeServer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	st := fakeServer{ctx: ctx, requests: make(chan *workerv1.GenerateRequest, 1), trailers: make(chan metadata.MD, 1), over: make(chan struct{})}
	req := ask(1)()
	req.StreamId = id
	st.requests <- methods.Worker.Open(req)
	close(st.requests)
	return st
}

func (s fakeServer) Context() context.Context { return s.ctx }

func (s fakeServer) SetTrailer(md metadata.MD) { s.trailers <- md; close(s.over) }

func (s fakeServer) Send(*workerv1.GenerateResponse) error { <-s.over; return nil }

func (fakeServer) SendAndClose(*workerv1.GenerateResponse) error { return nil }

func (s fakeServer) Recv() (*workerv1.GenerateRequest, error) {
	if req := <-s.requests; req != nil {
		return req, nil
	}
	return nil, io.EOF
}

// completes is an engine that yields only its End.
func completes(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		end := &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_STOP}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: end}}, nil)
	}
}

// TestRecordMatchesTheTrailer: the End is sent after the stream was abandoned and its caller was
// told so.
func TestRecordMatchesTheTrailer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hop := &rpc.Hop{Name: "worker", Observer: &ledger.Ledger{}}
		st := newFakeServer(t, "late")
		go func() {
			time.Sleep(time.Millisecond)
			hop.Live.Stop("late", streamerr.New(streamerr.Deadline, "too late"))
		}()
		err := rpc.Serve(hop, st, methods.Worker, stream.Push(completes))
		synctest.Wait()
		r := ledger.At(hop).Get("late")
		trailer := (<-st.trailers).Get(streamerr.ReasonTrailer)
		if e := streamerr.As(err); e.Reason != streamerr.Deadline || streamerr.Reason(r.GetReason()) != e.Reason || len(trailer) != 1 || trailer[0] != e.Reason.String() {
			t.Errorf("the handler says %v, the trailer %v, the record %v", err, trailer, r.GetReason())
		}
	})
}

// TestPanicOfAGatheredAnswerEndsItsStreamAlone checks that status, trailer and record have
// INTERNAL.
func TestPanicOfAGatheredAnswerEndsItsStreamAlone(t *testing.T) {
	hop := &rpc.Hop{Name: "worker", Observer: &ledger.Ledger{}, Log: slog.New(slog.DiscardHandler)}
	st := newFakeServer(t, "gathered")
	done := func() *workerv1.GenerateResponse { panic("unlucky") }
	err := rpc.ServeGather(hop, st, methods.Worker, stream.Push(completes), func(*workerv1.GenerateResponse) {}, done)
	r := ledger.At(hop).Get("gathered")
	trailer := (<-st.trailers).Get(streamerr.ReasonTrailer)
	if !errors.Is(err, streamerr.Internal) || streamerr.Reason(r.GetReason()) != streamerr.Internal || len(trailer) != 1 || trailer[0] != streamerr.Internal.String() {
		t.Errorf("the handler says %v, the trailer %v, the record %v", err, trailer, r.GetReason())
	}
}
