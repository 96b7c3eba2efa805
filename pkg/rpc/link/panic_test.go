package link_test

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// readAll reads a stream of the engine count to its end.
func readAll(t *testing.T, client workerv1.WorkerClient) {
	t.Helper()
	n := 0
	for _, err := range engineAt(client).Range(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{10, 1}}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 11 {
		t.Error(n)
	}
}

// wantReset checks that a callee's stream has ended because its caller has reset the call.
func wantReset(t *testing.T, h *rpc.Hop, id string) {
	t.Helper()
	awaitNone(t, h)
	if r := ledger.At(h).Get(id); streamerr.Reason(r.GetReason()) != streamerr.PeerReset || r.GetPath()[0] == "worker" {
		t.Errorf("the callee's record has %v, along %v", streamerr.Reason(r.GetReason()), r.GetPath())
	}
}

// TestPanicOnTheCallersLoop: a panic of a stream's code on the goroutine that reads the connection
// ends only that stream.
func TestPanicOnTheCallersLoop(t *testing.T) {
	for name, run := range map[string]struct {
		fresh func() any
		take  func(on *stream.Loop, m any) bool
	}{
		"of the constructor": {func() any { panic("unlucky") }, nil},
		"of the decoding":    {func() any { return armed() }, nil},
		"of the reader":      {func() any { return new(workerv1.GenerateResponse) }, func(*stream.Loop, any) bool { panic("unlucky") }},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, addr := serve(t, link.Options{}, count)
			client := dial(t, addr, link.Options{Links: 1})
			st := begin(t, t.Context(), client, "broken", 1<<30, 1)
			ended := make(chan error, 1)
			loop.SourceOf(st).Attend(run.fresh, run.take, func(err error) { ended <- err })
			e := streamerr.As(<-ended)
			if e.Reason != streamerr.Internal || e.Cause == nil || !strings.Contains(e.Cause.Error(), "unlucky") || !strings.Contains(e.Cause.Error(), "panic_test.go") {
				t.Errorf("the stream has ended with %v, because of %v", e, e.Cause)
			}
			wantReset(t, w.hop, "broken")
			readAll(t, client)
		})
	}
}

// A bomb is a request. Once armed, it panics when it is decoded.
type bomb struct {
	workerv1.GenerateRequest
	armed *atomic.Bool
}

func armed() *bomb {
	b := &bomb{armed: new(atomic.Bool)}
	b.armed.Store(true)
	return b
}

func (b *bomb) ProtoReflect() protoreflect.Message {
	if b.armed != nil && b.armed.Load() {
		panic("unlucky")
	}
	return b.GenerateRequest.ProtoReflect()
}

// A lateBomb is a request that is armed when the engine begins.
type lateBomb struct{ bomb }

var engineRuns atomic.Bool

func (b *lateBomb) ProtoReflect() protoreflect.Message {
	b.armed = &engineRuns
	return b.bomb.ProtoReflect()
}

// bombWorker serves Generate with lateBombs as requests.
type bombWorker struct {
	workerv1.UnimplementedWorkerServer
	hop *rpc.Hop
}

func (s *bombWorker) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	m := &rpc.Method[*workerv1.TokenRequest, lateBomb, workerv1.GenerateResponse]{
		Opened: func(b *lateBomb) (*workerv1.TokenRequest, bool) { return methods.Worker.Opened(&b.GenerateRequest) },
		ID:     methods.Worker.ID,
	}
	raw := st.(*grpc.GenericServerStream[workerv1.GenerateRequest, workerv1.GenerateResponse]).ServerStream
	return rpc.Serve(s.hop, &grpc.GenericServerStream[lateBomb, workerv1.GenerateResponse]{ServerStream: raw}, m, stream.Push(func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		if req.GetPrompt()[0] > 0 {
			return count(ctx, req)
		}
		engineRuns.Store(true)
		return waiting(ctx, req)
	}))
}

// TestPanicOnTheCalleesLoop: a message whose decoding panics ends only its stream.
func TestPanicOnTheCalleesLoop(t *testing.T) {
	w := &bombWorker{hop: &rpc.Hop{Name: "worker", Observer: &ledger.Ledger{}}}
	_, addr := serveWorker(t, link.Options{}, w)
	client := dial(t, addr, link.Options{Links: 1})
	st := begin(t, t.Context(), client, "broken", 0, 0)
	if _, err := st.Recv(); err != nil { // then the engine is running
		t.Fatal(err)
	}
	if err := st.Send(methods.Worker.Open(&workerv1.TokenRequest{})); err != nil {
		t.Fatal(err)
	}
	_, err := st.Recv()
	if e := streamerr.FromGRPC("", err); e == nil || e.Reason != streamerr.Internal || e.Path.String() != "worker" || strings.Contains(e.Text(), "unlucky") {
		t.Errorf("the caller got %v", err)
	}
	awaitNone(t, w.hop)
	if r := ledger.At(w.hop).Get("broken"); streamerr.Reason(r.GetReason()) != streamerr.Internal {
		t.Error(r)
	}
	engineRuns.Store(false)
	n := 0
	other := begin(t, t.Context(), client, "", 10, 1)
	for err = error(nil); err == nil; n++ {
		_, err = other.Recv()
	}
	if n != 12 {
		t.Errorf("%d messages, %v", n, err)
	}
}

// A garbler sends bytes that are not a GenerateResponse.
type garbler struct{ grpc.ServerStream }

func (g garbler) SendMsg(any) error         { return g.ServerStream.SendMsg(wrapperspb.Bytes([]byte{0xff})) }
func (g garbler) Unwrap() grpc.ServerStream { return g.ServerStream }

// garbleWorker serves Generate with a garbler.
type garbleWorker struct {
	workerv1.UnimplementedWorkerServer
	hop *rpc.Hop
}

func (s garbleWorker) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	raw := st.(*grpc.GenericServerStream[workerv1.GenerateRequest, workerv1.GenerateResponse]).ServerStream
	return rpc.Serve(s.hop, &grpc.GenericServerStream[workerv1.GenerateRequest, workerv1.GenerateResponse]{ServerStream: garbler{raw}}, methods.Worker, stream.Push(waiting))
}

// TestMessageThatCannotBeDecodedStopsTheCallee: as on gRPC.
func TestMessageThatCannotBeDecodedStopsTheCallee(t *testing.T) {
	for name, blocks := range map[string]bool{"carried": false, "received": true} {
		t.Run(name, func(t *testing.T) {
			w := garbleWorker{hop: &rpc.Hop{Name: "worker", Observer: &ledger.Ledger{}}}
			_, addr := serveWorker(t, link.Options{}, w)
			ctx := t.Context()
			if blocks {
				ctx = stream.WithBlocking(ctx)
			}
			q := &quitter{ended: make(chan error, 1)}
			stream.Start(ctx, engineAt(dial(t, addr, link.Options{})), &workerv1.TokenRequest{StreamId: "garbled"}, stream.Reader[*workerv1.GenerateResponse](q))
			last := polltest.Receive(t, "the stream ends", q.ended)
			if !errors.Is(last, streamerr.Internal) {
				t.Error(last)
			}
			wantReset(t, w.hop, "garbled")
		})
	}
}

// An exiter is a worker whose handlers exit their goroutines.
type exiter struct {
	workerv1.UnimplementedWorkerServer
}

func (exiter) Generate(grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	runtime.Goexit()
	return nil
}

func (exiter) Info(context.Context, *workerv1.InfoRequest) (*llmv1.WorkerInfo, error) {
	runtime.Goexit()
	return nil, nil
}

// TestHandlerThatExitsItsGoroutine: its call ends, and the connection serves other calls.
func TestHandlerThatExitsItsGoroutine(t *testing.T) {
	_, addr := serveWorker(t, link.Options{}, exiter{})
	client := dial(t, addr, link.Options{Links: 1})
	_, bidi := begin(t, t.Context(), client, "", 0, 0).Recv()
	_, unary := client.Info(t.Context(), &workerv1.InfoRequest{})
	for _, err := range []error{bidi, unary} {
		if e := streamerr.FromGRPC("worker", err); e == nil || e.Reason != streamerr.Internal || !streamerr.FromHop(err) {
			t.Errorf("the caller got %v", err)
		}
	}
}
