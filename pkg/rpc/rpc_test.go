package rpc_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/cloudwego/kitex/pkg/klog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

type engine = stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// count yields the numbers below prompt[0], one a millisecond, then an End. prompt[0] 0 is refused, 13 panics, 42 fails
// after two items. It notes the causes that it was stopped with.
type counter struct{ causes chan error }

func newCounter() *counter { return &counter{causes: make(chan error, 1000)} }

func (c *counter) generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		n := req.GetPrompt()[0]
		switch n {
		case 0:
			yield(nil, streamerr.InvalidParam("prompt", "prompt must not be 0"))
			return
		case 13:
			panic("unlucky")
		}
		stopping := stream.Stopping(ctx)
		for i := range n {
			if i > 1 {
				select {
				case <-time.After(time.Millisecond):
				case <-stopping:
					c.causes <- stream.Cause(ctx)
					yield(nil, stream.Cause(ctx))
					return
				}
			}
			if n == 42 && i == 2 {
				yield(nil, streamerr.New(streamerr.EngineFailed, "out of luck"))
				return
			}
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{i}}}}, nil) {
				if cause := stream.Cause(ctx); cause != nil { // a caller that is gone may be noticed by Send first
					c.causes <- cause
				}
				return
			}
		}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_STOP, Path: []string{"engine"},
		}}}, nil)
	}
}

// service is a Worker whose only method is Generate.
type service struct {
	workerv1.UnimplementedWorkerServer
	hop    *rpc.Hop
	engine engine
	serve  func(*rpc.Hop, grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error // nil for one of engine
}

func (s *service) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	if s.serve != nil {
		return s.serve(s.hop, st)
	}
	return rpc.Serve(s.hop, st, methods.Worker, s.engine)
}

func newService(name string, e engine) *service {
	return &service{hop: &rpc.Hop{Name: name, Log: slog.New(slog.DiscardHandler), Observer: &ledger.Ledger{}}, engine: e}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func serveGRPC(t testing.TB, svc workerv1.WorkerServer) (addr string) {
	t.Helper()
	s := grpc.NewServer(grpc.Creds(connloss.Sense(insecure.NewCredentials())))
	workerv1.RegisterWorkerServer(guard.New(s, guard.Options{Limits: guard.Default.For(100)}), svc)
	ln := listen(t)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ln) })
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	return ln.Addr().String()
}

func serveKitex(t testing.TB, svc workerv1.WorkerServer) (addr string) {
	t.Helper()
	s := kitexrpc.NewServer()
	workerv1.RegisterWorkerServer(guard.New(s, guard.Options{Limits: guard.Default.For(100)}), svc)
	ln := listen(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	return ln.Addr().String()
}

func dialGRPC(t testing.TB, addr string) grpc.ClientConnInterface {
	t.Helper()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func dialKitex(t testing.TB, addr string) grpc.ClientConnInterface {
	t.Helper()
	cc, err := kitexrpc.Dial(addr, &workerv1.Worker_ServiceDesc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

var transports = []struct {
	name  string
	serve func(testing.TB, workerv1.WorkerServer) string
	dial  func(testing.TB, string) grpc.ClientConnInterface
}{
	{"grpc to grpc", serveGRPC, dialGRPC},
	{"grpc to kitex", serveKitex, dialGRPC},
	{"kitex to grpc", serveGRPC, dialKitex},
	{"kitex to kitex", serveKitex, dialKitex},
}

func TestMain(m *testing.M) {
	klog.SetOutput(io.Discard)
	leaktest.Main(m)
}

func ask(n uint32) func() *workerv1.TokenRequest {
	return func() *workerv1.TokenRequest { return &workerv1.TokenRequest{Prompt: []uint32{n}} }
}

func engineAt(cc grpc.ClientConnInterface, self, peer string) engine {
	return rpc.Dial(self, peer, workerv1.NewWorkerClient(cc).Generate, methods.Worker)
}

func TestEngineAcrossAProcessBoundaryKeepsTheContract(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
				svc := newService("worker", newCounter().generate)
				return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
					Engine: engineAt(tr.dial(t, tr.serve(t, svc)), "caller", "worker"),
					Short:  ask(5), Long: ask(1 << 30), Bad: ask(0),
					Live: svc.hop.Live.Len,
				}
			})
		})
	}
}

// TestStopCrossesThreeHopsWithItsCause runs edge -> chat (Kitex) -> worker (grpc-go), as the services do.
func TestStopCrossesThreeHopsWithItsCause(t *testing.T) {
	leaf := newCounter()
	worker := newService("worker", leaf.generate)
	chat := newService("chat", engineAt(dialGRPC(t, serveGRPC(t, worker)), "chat", "worker"))
	edge := engineAt(dialKitex(t, serveKitex(t, chat)), "edge", "chat")
	for range 200 {
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		gone := &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client"), Message: "closed its connection"}
		n := 0
		for _, err := range edge(ctx, ask(1<<30)()) {
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
			t.Fatalf("the leaf heard %v", got)
		}
		ctl.Release()
	}
}

func TestFailureCrossesThreeHopsWithItsPath(t *testing.T) {
	worker := newService("worker", newCounter().generate)
	chat := newService("chat", engineAt(dialGRPC(t, serveGRPC(t, worker)), "chat", "worker"))
	edge := engineAt(dialKitex(t, serveKitex(t, chat)), "edge", "chat")
	for n, want := range map[uint32]struct {
		reason  streamerr.Reason
		message string
		param   string
	}{
		0:  {streamerr.Invalid, "prompt must not be 0", "prompt"},
		42: {streamerr.EngineFailed, "out of luck", ""},
		13: {streamerr.Internal, "a bug in worker ended this stream; its log has the details", ""},
	} {
		var last error
		for _, err := range edge(t.Context(), ask(n)()) {
			last = err
		}
		e := streamerr.As(last)
		if e.Reason != want.reason || e.Path.String() != "worker > chat" || e.Message != want.message || e.Param != want.param {
			t.Errorf("prompt %d: %v (param %q)", n, e, e.Param)
		}
	}
}

func TestCompletedStreamNamesItsPath(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	for _, tr := range transports {
		var end *llmv1.End
		for out, err := range engineAt(tr.dial(t, tr.serve(t, svc)), "caller", "worker")(t.Context(), ask(2)()) {
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

func TestVanillaClientSeesCodeReasonAndPath(t *testing.T) {
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
			if err := st.CloseSend(); err != nil { // half-close is no cancel
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

func TestUnknownMethodsAreUnimplemented(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	for _, tr := range transports[:2] {
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

func TestMessageOverTheLimitIsRefusedAndTheServerGoesOn(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	for _, tr := range transports {
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
			for _, err := range rpc.Dial("caller", "worker", client.Generate, methods.Worker)(t.Context(), ask(3)()) {
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

func TestNoPeerIsPeerLostNotAHang(t *testing.T) {
	ln := listen(t)
	addr := ln.Addr().String()
	_ = ln.Close()
	for _, dial := range []func(testing.TB, string) grpc.ClientConnInterface{dialGRPC, dialKitex} {
		var last error
		for _, err := range engineAt(dial(t, addr), "caller", "worker")(t.Context(), ask(3)()) {
			last = err
		}
		if e := streamerr.As(last); e.Reason != streamerr.PeerLost || e.Path.String() != "worker" {
			t.Error(e)
		}
	}
}

func TestEachTimerEndsWithItsNameAndItsHop(t *testing.T) {
	slow := func(first, gap time.Duration) engine {
		return func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
			return func(yield func(*workerv1.GenerateResponse, error) bool) {
				stopping := stream.Stopping(ctx)
				for i := range req.GetPrompt()[0] {
					wait := gap
					if i == 0 {
						wait = first
					}
					select {
					case <-time.After(wait):
					case <-stopping:
						yield(nil, stream.Cause(ctx))
						return
					}
					if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{i}}}}, nil) {
						return
					}
				}
				yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
			}
		}
	}
	const long, short = time.Hour, 20 * time.Millisecond
	for name, test := range map[string]struct {
		timers     rpc.Timers
		first, gap time.Duration
		message    string
	}{
		"first token":   {rpc.Timers{FirstToken: short, Stall: long}, long, 0, "there was no token within 20ms (first-token timeout of worker)"},
		"stall":         {rpc.Timers{FirstToken: long, Stall: short}, 0, long, "there was no token for 20ms (stall timeout of worker)"},
		"deadline":      {rpc.Timers{Deadline: short, Stall: long}, 0, 2 * time.Millisecond, "the stream has taken longer than 20ms (deadline of worker)"},
		"none of these": {rpc.Timers{FirstToken: long, Stall: long}, 0, 0, ""},
	} {
		svc := newService("worker", slow(test.first, test.gap))
		svc.hop.Timers = test.timers
		var last error
		for _, err := range engineAt(dialGRPC(t, serveGRPC(t, svc)), "caller", "worker")(t.Context(), ask(100)()) {
			last = err
		}
		if test.message == "" {
			if last != nil {
				t.Errorf("%s: %v", name, last)
			}
			continue
		}
		if e := streamerr.As(last); e.Reason != streamerr.Deadline || e.Path.String() != "worker" || e.Message != test.message {
			t.Errorf("%s: %v", name, last)
		}
	}
}

// BenchmarkStream is what an item costs across one process boundary, per transport.
func BenchmarkStream(b *testing.B) {
	flood := func(_ context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for i := range req.GetPrompt()[0] {
				if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{i}}}}, nil) {
					return
				}
			}
			yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
		}
	}
	for _, tr := range transports {
		b.Run(tr.name, func(b *testing.B) {
			e := engineAt(tr.dial(b, tr.serve(b, newService("worker", flood))), "caller", "worker")
			b.ReportAllocs()
			b.ResetTimer()
			for _, err := range e(b.Context(), ask(uint32(b.N))()) {
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
