package guard_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	rpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) {
	kitexrpc.LogTo(io.Discard)
	leaktest.Main(m)
}

// echo is a Worker that answers every message of Generate with a message, answers Info with
// metadata, and panics in Stop.
type echo struct {
	workerv1.UnimplementedWorkerServer
}

func (echo) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	for {
		if _, err := st.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := st.Send(&workerv1.GenerateResponse{}); err != nil {
			return err
		}
	}
}

func (echo) Info(ctx context.Context, _ *workerv1.InfoRequest) (*llmv1.WorkerInfo, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if err := grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "t")); err != nil {
		return nil, err
	}
	return &llmv1.WorkerInfo{Model: strings.Join(md.Get("x-in"), ",")}, nil
}

func (echo) Stop(context.Context, *workerv1.StopRequest) (*workerv1.StopResponse, error) {
	panic("unlucky")
}

// A counter is an Observer.
type counter struct {
	opened, begun, closed, unbegun atomic.Int64

	mu      sync.Mutex // guards refused
	refused map[string]int
}

func newCounter() *counter { return &counter{refused: map[string]int{}} }

func (c *counter) CallOpened() { c.opened.Add(1) }
func (c *counter) CallBegun()  { c.begun.Add(1) }
func (c *counter) CallClosed(begun bool) {
	if !begun {
		c.unbegun.Add(1)
	}
	c.closed.Add(1)
}

func (c *counter) CallRefused(limit string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[limit]++
}

func (c *counter) refusals(limit guard.Limit) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[string(limit)]
}

var servers = []struct {
	name  string
	serve func(*testing.T, guard.Options) (addr string)
}{
	{"grpc-go", func(t *testing.T, o guard.Options) string {
		gs := grpc.NewServer()
		g := guard.New(gs, o)
		register(g)
		reflection.Register(g)
		ln := listen(t)
		var serving sync.WaitGroup
		serving.Go(func() { _ = gs.Serve(ln) })
		t.Cleanup(func() { gs.Stop(); serving.Wait() })
		return ln.Addr().String()
	}},
	{"kitex", func(t *testing.T, o guard.Options) string {
		s := kitexrpc.NewServer()
		g := guard.New(s, o)
		register(g)
		reflection.RegisterV1(g)
		ln := listen(t)
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := s.Serve(ln); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { s.Stop(); serving.Wait() })
		return ln.Addr().String()
	}},
}

func register(s grpc.ServiceRegistrar) {
	workerv1.RegisterWorkerServer(s, echo{})
	healthpb.RegisterHealthServer(s, health.NewServer())
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

var bidi = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// methods has one method of each kind: bidi, unary and server-streaming.
var methods = []string{workerv1.Worker_Generate_FullMethodName, workerv1.Worker_Info_FullMethodName, healthpb.Health_Watch_FullMethodName}

// open opens a call, and sends only its headers.
func open(t *testing.T, cc *grpc.ClientConn, method string) grpc.ClientStream {
	t.Helper()
	st, err := cc.NewStream(t.Context(), bidi, method)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestCallsWithoutAFirstMessageAreEnded opens thousands of calls of every kind that send nothing.
// It checks that all of them end, and that the server keeps none of their goroutines.
func TestCallsWithoutAFirstMessageAreEnded(t *testing.T) {
	const n = 2000
	for _, srv := range servers {
		t.Run(srv.name, func(t *testing.T) {
			seen := newCounter()
			cc := dial(t, srv.serve(t, guard.Options{Name: "hop", Limits: guard.Limits{FirstMessage: 100 * time.Millisecond}, Observer: seen}))
			if _, err := workerv1.NewWorkerClient(cc).Info(t.Context(), &workerv1.InfoRequest{}); err != nil {
				t.Fatal(err)
			}
			before := runtime.NumGoroutine()
			calls := make([]grpc.ClientStream, n)
			for i := range calls {
				calls[i] = open(t, cc, methods[i%len(methods)])
			}
			for i, st := range calls {
				err := st.RecvMsg(&workerv1.GenerateResponse{})
				e := streamerr.FromGRPC("", err)
				if status.Code(err) != codes.DeadlineExceeded || e.Path.String() != "hop" || e.Message != "the call sent no message within 100ms (first-message timeout of hop)" {
					t.Fatalf("%s: %v", methods[i%len(methods)], e)
				}
			}
			polltest.Eventually(t, "all calls are closed", func() bool { return seen.closed.Load() == n+1 })
			if opened, unbegun, refused := seen.opened.Load(), seen.unbegun.Load(), seen.refusals(guard.FirstMessage); opened != n+1 || unbegun != n || refused != n {
				t.Errorf("%d calls were opened, %d never begun, %d refused", opened, unbegun, refused)
			}
			polltest.Eventually(t, "the calls' goroutines have ended", func() bool { return runtime.NumGoroutine() <= before+n/100 })
		})
	}
}

func TestOpenCallsAreBoundedPerConnectionAndInAll(t *testing.T) {
	const each, all = 20, 50
	for _, srv := range servers {
		t.Run(srv.name, func(t *testing.T) {
			seen := newCounter()
			var log logtest.Log
			addr := srv.serve(t, guard.Options{Name: "hop", Limits: guard.Limits{PerConnection: each, Total: all}, Observer: seen, Log: slog.New(slog.NewTextHandler(&log, nil))})
			refused := func(cc *grpc.ClientConn, limit guard.Limit, words string) {
				t.Helper()
				_, err := workerv1.NewWorkerClient(cc).Info(t.Context(), &workerv1.InfoRequest{})
				e := streamerr.FromGRPC("", err)
				if status.Code(err) != codes.ResourceExhausted || e.Reason != streamerr.Overloaded || e.RetryAfter == 0 || e.Path.String() != "hop" || !strings.Contains(e.Message, words) {
					t.Errorf("limit %s: %v", limit, err)
				}
				if seen.refusals(limit) == 0 {
					t.Errorf("no refusal was counted for limit %s", limit)
				}
			}
			var first grpc.ClientStream
			conns := []*grpc.ClientConn{dial(t, addr), dial(t, addr), dial(t, addr)}
			for i := range all {
				st := open(t, conns[i/each], methods[0])
				if i == 0 {
					first = st
				}
			}
			polltest.Eventually(t, "all calls are open", func() bool { return seen.opened.Load() == all })
			refused(conns[2], guard.Total, "on this server")
			if err := first.CloseSend(); err != nil {
				t.Fatal(err)
			}
			polltest.Eventually(t, "one call is closed", func() bool { return seen.closed.Load() == 1 })
			refused(conns[1], guard.PerConnection, "on this connection")
			if _, err := workerv1.NewWorkerClient(conns[0]).Info(t.Context(), &workerv1.InfoRequest{}); err != nil {
				t.Errorf("the next call after the end of another is refused: %v", err)
			}
			if got := strings.Count(log.String(), "grpc calls are refused"); got != 2 {
				t.Errorf("%d lines were logged for 2 limits:\n%s", got, log.String())
			}
		})
	}
}

func TestPanicEndsOneCallAlone(t *testing.T) {
	for _, srv := range servers {
		t.Run(srv.name, func(t *testing.T) {
			client := workerv1.NewWorkerClient(dial(t, srv.serve(t, guard.Options{Name: "hop"})))
			_, err := client.Stop(t.Context(), &workerv1.StopRequest{})
			if e := streamerr.FromGRPC("", err); e == nil || e.Reason != streamerr.Internal || e.Path.String() != "hop" || strings.Contains(e.Message, "unlucky") {
				t.Errorf("the caller got %v", e)
			}
			if _, err := client.Info(t.Context(), &workerv1.InfoRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A trap is a codec that panics on the first message of a call of Generate.
type trap struct{ encoding.CodecV2 }

func (c trap) Unmarshal(data mem.BufferSlice, v any) error {
	if _, ok := v.(*workerv1.GenerateRequest); ok {
		panic("unlucky")
	}
	return c.CodecV2.Unmarshal(data, v)
}

// TestPanicInAFirstMessageEndsOneCallAlone: the panic happens on the goroutine that waits for the
// first message, not on the handler's.
func TestPanicInAFirstMessageEndsOneCallAlone(t *testing.T) {
	gs := grpc.NewServer(grpc.ForceServerCodecV2(trap{encoding.GetCodecV2("proto")}))
	register(guard.New(gs, guard.Options{Name: "hop", Limits: guard.Limits{FirstMessage: polltest.Patience}}))
	ln := listen(t)
	var serving sync.WaitGroup
	serving.Go(func() { _ = gs.Serve(ln) })
	defer serving.Wait()
	defer gs.Stop()
	client := workerv1.NewWorkerClient(dial(t, ln.Addr().String()))
	st, err := client.Generate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&workerv1.GenerateRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err = st.Recv()
	if e := streamerr.FromGRPC("", err); e == nil || e.Reason != streamerr.Internal || e.Path.String() != "hop" || strings.Contains(e.Message, "unlucky") {
		t.Errorf("the caller got %v", e)
	}
	if _, err := client.Info(t.Context(), &workerv1.InfoRequest{}); err != nil {
		t.Error(err)
	}
}

func TestGuardedMethodsAreCalledAsBefore(t *testing.T) {
	for _, srv := range servers {
		t.Run(srv.name, func(t *testing.T) {
			cc := dial(t, srv.serve(t, guard.Options{Limits: guard.Default.For(10)}))
			var trailer metadata.MD
			ctx := metadata.AppendToOutgoingContext(t.Context(), "x-in", "value")
			info, err := workerv1.NewWorkerClient(cc).Info(ctx, &workerv1.InfoRequest{}, grpc.Trailer(&trailer))
			if err != nil || info.GetModel() != "value" || len(trailer.Get("x-tail")) != 1 {
				t.Errorf("a unary call gets %v, %v, %v", info, trailer, err)
			}
			st, err := rpb.NewServerReflectionClient(cc).ServerReflectionInfo(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, symbol := range []string{"whence.worker.v1.Worker.Info", "grpc.health.v1.Health"} {
				if err := st.Send(&rpb.ServerReflectionRequest{MessageRequest: &rpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}}); err != nil {
					t.Fatal(err)
				}
				if resp, err := st.Recv(); err != nil || len(resp.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
					t.Errorf("reflection returned for %s: %v, %v", symbol, resp, err)
				}
			}
			if err := st.CloseSend(); err != nil {
				t.Error(err)
			}
		})
	}
}
