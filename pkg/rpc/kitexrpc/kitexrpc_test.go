package kitexrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	rpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
)

func TestMain(m *testing.M) {
	kitexrpc.LogTo(io.Discard)
	leaktest.Main(m)
}

// An echo is a Worker whose Info answers with metadata, and whose Generate returns the messages
// that it receives.
type echo struct {
	workerv1.UnimplementedWorkerServer
}

func (echo) Info(ctx context.Context, _ *workerv1.InfoRequest) (*llmv1.WorkerInfo, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if err := grpc.SetHeader(ctx, metadata.Pairs("x-head", "h1", "x-head", "h2")); err != nil {
		return nil, err
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "t")); err != nil {
		return nil, err
	}
	if len(md.Get("x-fail")) > 0 {
		st, _ := status.New(codes.FailedPrecondition, "as asked").WithDetails(&errdetails.ErrorInfo{Reason: "WHY"})
		return nil, st.Err()
	}
	values := md.Get("x-in")
	if len(values) == 0 {
		values = []string{""}
	}
	return &llmv1.WorkerInfo{Model: values[0]}, nil
}

func (echo) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	for {
		in, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: in.GetTokens().GetPrompt()}}}
		if err := st.Send(out); err != nil {
			return err
		}
	}
}

func serve(t *testing.T) (addr string) {
	t.Helper()
	s := kitexrpc.NewServer()
	s.MaxRecvBytes = 1 << 20
	workerv1.RegisterWorkerServer(s, echo{})
	hs := health.NewServer()
	healthpb.RegisterHealthServer(s, hs)
	reflection.Register(s)
	return serveOn(t, s)
}

func serveOn(t *testing.T, s *kitexrpc.Server) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	return ln.Addr().String()
}

func clients(t *testing.T, addr string, opts ...grpc.DialOption) map[string]grpc.ClientConnInterface {
	t.Helper()
	g, err := grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kitexrpc.Dial(addr, &workerv1.Worker_ServiceDesc, &healthpb.Health_ServiceDesc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = g.Close(), k.Close() })
	return map[string]grpc.ClientConnInterface{"grpc": g, "kitex": k}
}

func TestUnaryCallsCarryMetadataBothWays(t *testing.T) {
	for name, cc := range clients(t, serve(t)) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-in", "value")
		var head, tail metadata.MD
		info, err := workerv1.NewWorkerClient(cc).Info(ctx, &workerv1.InfoRequest{}, grpc.Header(&head), grpc.Trailer(&tail))
		if err != nil || info.GetModel() != "value" {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		if name == "grpc" && (len(head.Get("x-head")) != 2 || len(tail.Get("x-tail")) != 1) {
			t.Error(head, tail)
		}
	}
}

func TestStatusCrossesUnchanged(t *testing.T) {
	for name, cc := range clients(t, serve(t)) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-fail", "yes")
		_, err := workerv1.NewWorkerClient(cc).Info(ctx, &workerv1.InfoRequest{})
		st := status.Convert(err)
		if st.Code() != codes.FailedPrecondition || st.Message() != "as asked" || len(st.Details()) != 1 {
			t.Errorf("%s: %v, %v", name, st, st.Details())
		}
	}
}

func TestHealthAndReflectionWork(t *testing.T) {
	for name, cc := range clients(t, serve(t)) {
		resp, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
		if name == "kitex" {
			continue // reflection is for tools, which do not use Kitex
		}
		st, err := rpb.NewServerReflectionClient(cc).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Send(&rpb.ServerReflectionRequest{MessageRequest: &rpb.ServerReflectionRequest_ListServices{}}); err != nil {
			t.Fatal(err)
		}
		list, err := st.Recv()
		if err != nil || len(list.GetListServicesResponse().GetService()) != 4 {
			t.Errorf("%v, %v", list, err)
		}
		if err := st.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := st.Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
}

// TestCompressionIsTheCallersChoice: linking gzip makes grpc-go's clients accept it, but only a caller
// that compresses its messages gets compressed answers.
func TestCompressionIsTheCallersChoice(t *testing.T) {
	addr := serve(t)
	for name, opts := range map[string][]grpc.DialOption{
		"":        nil,
		gzip.Name: {grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name))},
	} {
		for client, cc := range clients(t, addr, opts...) {
			var head metadata.MD
			st, err := workerv1.NewWorkerClient(cc).Generate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = st.Send(&workerv1.GenerateRequest{Message: &workerv1.GenerateRequest_Tokens{Tokens: &workerv1.TokenRequest{Prompt: make([]uint32, 1000)}}})
			if out, err := st.Recv(); err != nil || len(out.GetTokens().GetIds()) != 1000 {
				t.Errorf("%s with %q: %v", client, name, err)
			}
			if client == "grpc" {
				head, _ = st.Header()
			}
			if got := head.Get("grpc-encoding"); len(got) > 0 {
				t.Errorf("%s with %q: grpc-encoding is %q", client, name, got)
			}
			_ = st.CloseSend()
			if _, err := st.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("%s with %q: %v", client, name, err)
			}
		}
	}
}

func TestUnknownEncodingIsUnimplemented(t *testing.T) {
	resp := post(t, serve(t), "zstd", []byte{1, 0, 0, 0, 1, 0})
	if code := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status"); code != strconv.Itoa(int(codes.Unimplemented)) {
		t.Errorf("code %q", code)
	}
}

// post calls Generate with the given bytes, and returns the answer with its trailers. The call stays
// open until it is answered.
func post(t *testing.T, addr, encoding string, bytes []byte) *http.Response {
	t.Helper()
	h2c := &http.Transport{Protocols: new(http.Protocols)}
	h2c.Protocols.SetUnencryptedHTTP2(true)
	defer h2c.CloseIdleConnections()
	body, send := io.Pipe()
	defer send.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/whence.worker.v1.Worker/Generate", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	if encoding != "" {
		req.Header.Set("Grpc-Encoding", encoding)
	}
	go func() { _, _ = send.Write(bytes) }() // returns when the pipe is closed
	resp, err := h2c.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp
}

// TestClaimedLengthIsNotAllocated sends the five bytes that announce a message of 1 GiB.
func TestClaimedLengthIsNotAllocated(t *testing.T) {
	addr := serve(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp := post(t, addr, "", []byte{0, 0x40, 0, 0, 0})
	code := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
	if code != strconv.Itoa(int(codes.ResourceExhausted)) {
		t.Errorf("code %q", code)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("%d MiB were allocated", grown>>20)
	}
}

// A twice is a service whose short name another service has.
var twice = grpc.ServiceDesc{ServiceName: "other.v2.Worker", HandlerType: (*any)(nil)}

func TestServicesMustHaveDistinctShortNames(t *testing.T) {
	s := kitexrpc.NewServer()
	workerv1.RegisterWorkerServer(s, echo{})
	s.RegisterService(&twice, struct{}{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ln); err == nil {
		t.Error("Serve accepted two services with the same short name")
	}
}

// TestCallerThatDoesNotReceiveIsNoticedAtOnce: Kitex itself notices the end of a context within 5 s.
func TestCallerThatDoesNotReceiveIsNoticedAtOnce(t *testing.T) {
	const calls = 100
	ended := make(chan struct{})
	s := kitexrpc.NewServer()
	workerv1.RegisterWorkerServer(s, &waiting{ended: ended})
	addr := serveOn(t, s)
	kitex, err := kitexrpc.Dial(addr, &workerv1.Worker_ServiceDesc)
	if err != nil {
		t.Fatal(err)
	}
	tt, err := ttrpc.Dial("", addr, &workerv1.Worker_ServiceDesc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = kitex.Close(), tt.Close() })
	for name, cc := range map[string]grpc.ClientConnInterface{"gRPC": kitex, "TTHeader Streaming": tt} {
		t.Run(name, func(t *testing.T) {
			late := time.NewTimer(polltest.Patience) // with Kitex's timer, all calls take longer
			defer late.Stop()
			for i := range calls {
				ctx, cancel := context.WithCancel(t.Context())
				st, err := workerv1.NewWorkerClient(cc).Generate(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if err := st.Send(&workerv1.GenerateRequest{}); err != nil {
					t.Fatal(err)
				}
				if _, err := st.Recv(); err != nil {
					t.Fatal(err)
				}
				cancel()
				select {
				case <-ended:
				case <-late.C:
					t.Fatalf("%d calls of %d have ended", i, calls)
				}
				if _, err := st.Recv(); status.Code(err) != codes.Canceled {
					t.Fatalf("a canceled call: %v", err)
				}
			}
		})
	}
}

// waiting answers with one message, and reports when its caller has gone.
type waiting struct {
	workerv1.UnimplementedWorkerServer
	ended chan struct{}
}

func (w *waiting) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	if _, err := st.Recv(); err != nil {
		return err
	}
	if err := st.Send(&workerv1.GenerateResponse{}); err != nil {
		return err
	}
	<-st.Context().Done()
	w.ended <- struct{}{}
	return st.Context().Err()
}

// TestClosedClientsLeaveNoGoroutines: the goroutines of many clients are those of one.
func TestClosedClientsLeaveNoGoroutines(t *testing.T) {
	addr := serve(t)
	use := func() {
		cc, err := kitexrpc.Dial(addr, &workerv1.Worker_ServiceDesc)
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		if _, err := workerv1.NewWorkerClient(cc).Info(t.Context(), &workerv1.InfoRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	use() // starts what Kitex keeps for the process
	const clients = 50
	before := runtime.NumGoroutine()
	for range clients {
		use()
	}
	polltest.Eventually(t, "the closed clients have no goroutines", func() bool { return runtime.NumGoroutine() <= before+clients/5 })
}
