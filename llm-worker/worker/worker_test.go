package worker_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/drain"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// start runs a worker with the embedded model until the test ends.
func start(t *testing.T, change func(*worker.Config)) (*grpc.ClientConn, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	return startUntil(ctx, t, cancel, change), cancel
}

// startUntil is start for a worker that drains when ctx is done. cancel must end ctx and its drain.
func startUntil(ctx context.Context, t *testing.T, cancel func(), change func(*worker.Config)) *grpc.ClientConn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := worker.Config{Name: worker.ServeName, MaxRunning: 8, MaxQueued: 8, Grace: 50 * time.Millisecond}
	if change != nil {
		change(&c)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := worker.Run(ctx, c, ln, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	})
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = cc.Close()
	})
	return cc
}

func request(limit uint32) *workerv1.TokenRequest {
	return &workerv1.TokenRequest{
		Prompt:   []uint32{1534, 10, 11, 12},
		Sampling: &llmv1.Sampling{Temperature: proto.Float32(0), MaxTokens: proto.Uint32(limit), IgnoreEos: true},
	}
}

func TestEmbeddedModelBehindGRPCKeepsTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
		cc, _ := start(t, func(c *worker.Config) { c.MaxQueued, c.Pace = 20, 200 })
		client := workerv1.NewWorkerClient(cc)
		return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
			Engine: rpc.Dial("caller", "llm-worker/0", client.Generate, methods.Worker),
			Short:  func() *workerv1.TokenRequest { return request(3) },
			Long:   func() *workerv1.TokenRequest { return request(1000) },
			Bad:    func() *workerv1.TokenRequest { return &workerv1.TokenRequest{Prompt: []uint32{1 << 30}} },
			Live: func() int {
				info, err := client.Info(context.WithoutCancel(t.Context()), &workerv1.InfoRequest{})
				if err != nil {
					t.Error(err)
				}
				return int(info.GetLoad().GetRunning() + info.GetLoad().GetQueued())
			},
		}
	})
}

func TestInfoDescribesTheModel(t *testing.T) {
	cc, _ := start(t, nil)
	info, err := workerv1.NewWorkerClient(cc).Info(t.Context(), &workerv1.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if info.GetInstance() != "llm-worker/0" || info.GetModel() != "whence-tiny" || info.GetEngine() != "embedded" || info.GetContextLength() != 1024 ||
		info.GetVocabSize() != 1536 || len(info.GetEosTokenIds()) != 2 || info.GetLoad().GetMaxRunning() != 8 || info.GetLoad().GetKvTotalTokens() == 0 {
		t.Error(info)
	}
}

func TestWrongModelAndBadSamplingAreRefusedByName(t *testing.T) {
	cc, _ := start(t, nil)
	engine := rpc.Dial("caller", "llm-worker/0", workerv1.NewWorkerClient(cc).Generate, methods.Worker)
	for name, c := range map[string]struct {
		change func(*workerv1.TokenRequest)
		reason streamerr.Reason
		param  string
	}{
		"model":       {func(r *workerv1.TokenRequest) { r.Model = "other" }, streamerr.NotFound, "model"},
		"adapter":     {func(r *workerv1.TokenRequest) { r.Adapter = "legal" }, streamerr.Invalid, "model"},
		"temperature": {func(r *workerv1.TokenRequest) { r.Sampling.Temperature = proto.Float32(-1) }, streamerr.Invalid, "sampling.temperature"},
		"prompt":      {func(r *workerv1.TokenRequest) { r.Prompt = nil }, streamerr.Invalid, "prompt"},
		"context":     {func(r *workerv1.TokenRequest) { r.Prompt = make([]uint32, 1024) }, streamerr.Invalid, "prompt"},
	} {
		req := request(5)
		c.change(req)
		var last error
		for _, err := range engine.Range(t.Context(), req) {
			last = err
		}
		if e := streamerr.As(last); last == nil || e.Reason != c.reason || e.Param != c.param {
			t.Errorf("%s: %v (param %q)", name, last, e.Param)
		}
	}
}

func TestEngineThatCannotContinueGetsNoBegunAnswers(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	engine := func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return stream.Fail[*workerv1.GenerateResponse](errors.New("the engine was asked"))
	}
	info := func() *llmv1.WorkerInfo { return &llmv1.WorkerInfo{} }
	s := worker.NewServer("w", "m", engine, info, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ctx, ln, 0); err != nil {
			t.Error(err)
		}
	})
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cc.Close()
		cancel()
		wg.Wait()
	}()
	req := request(5)
	req.Generated = 2
	for _, err := range rpc.Dial("caller", "w", workerv1.NewWorkerClient(cc).Generate, methods.Worker).Range(t.Context(), req) {
		if e := streamerr.As(err); e.Reason != streamerr.Invalid || e.Param != "generated" {
			t.Error(err)
		}
	}
}

func TestOperatorStopsAStreamFromOutside(t *testing.T) {
	cc, _ := start(t, func(c *worker.Config) { c.Pace = 50 })
	client := workerv1.NewWorkerClient(cc)
	req := request(1000)
	req.StreamId = "mine"
	n := 0
	var last error
	for _, err := range rpc.Dial("caller", "llm-worker/0", client.Generate, methods.Worker).Range(t.Context(), req) {
		if last = err; err != nil {
			break
		}
		if n++; n == 3 {
			if _, err := client.Stop(t.Context(), &workerv1.StopRequest{Stream: &streamv1.StopStreamRequest{StreamId: "mine"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if e := streamerr.As(last); e.Reason != streamerr.OperatorStop || e.Path.String() != "operator > llm-worker/0" {
		t.Error(last)
	}
	_, err := client.Stop(t.Context(), &workerv1.StopRequest{Stream: &streamv1.StopStreamRequest{StreamId: "mine"}})
	if status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

func TestDrainRefusesNewStreamsAndEndsOldOnes(t *testing.T) {
	ctx, order := drain.New(context.Background())
	end := func() {
		order.Begin(errors.New("SIGTERM"))
		order.Hurry()
	}
	cc := startUntil(ctx, t, end, func(c *worker.Config) { c.Pace, c.Grace = 50, time.Hour })
	client := workerv1.NewWorkerClient(cc)
	engine := rpc.Dial("caller", "llm-worker/0", client.Generate, methods.Worker)
	n := 0
	var last error
	for _, err := range engine.Range(t.Context(), request(1000)) {
		if last = err; err != nil {
			break
		}
		if n++; n != 3 {
			continue
		}
		order.Begin(errors.New("SIGTERM"))
		polltest.Eventually(t, "the worker does not serve", func() bool {
			resp, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{})
			return err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING
		})
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		for _, err := range engine.Range(ctx, request(5)) {
			if e := streamerr.As(err); err == nil || e.Reason != streamerr.Draining || e.RetryAfter == 0 {
				t.Errorf("a new stream got %v", err)
			}
		}
		ctl.Release()
		order.Hurry()
	}
	if e := streamerr.As(last); e.Reason != streamerr.Draining || e.Path.String() != "llm-worker/0" {
		t.Error(last)
	}
}
