package worker_test

import (
	"context"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func embedder(client workerv1.WorkerClient) worker.EmbedEngine {
	tell := func(ctx context.Context, stop *streamv1.StopStreamRequest) error {
		_, err := client.Stop(ctx, &workerv1.StopRequest{Stream: stop})
		return err
	}
	return rpc.DialUnary("caller", "llm-worker/0", client.Embed, tell, methods.WorkerEmbed)
}

func texts(n, tokens int) *workerv1.EmbedRequest {
	req := &workerv1.EmbedRequest{}
	for range n {
		req.Inputs = append(req.Inputs, &workerv1.TokenIds{Ids: make([]uint32, tokens)})
	}
	return req
}

func TestVectorsBehindGRPCKeepTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse] {
		cc, _ := start(t, nil)
		client := workerv1.NewWorkerClient(cc)
		return streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse]{
			Engine: embedder(client),
			Short:  func() *workerv1.EmbedRequest { return texts(2, 3) },
			Bad:    func() *workerv1.EmbedRequest { return texts(1, 0) },
			Live: func() int {
				info, err := client.Info(context.WithoutCancel(t.Context()), &workerv1.InfoRequest{})
				if err != nil || !info.GetEmbeds() {
					t.Error(info, err)
				}
				return int(info.GetLoad().GetRunning() + info.GetLoad().GetQueued())
			},
		}
	})
}

// A request of many texts takes seconds. A stop must end it within a moment, with the cause, on
// both sides. The texts are short, so that a step ends within the stop's grace on a busy machine.
func TestStoppedVectorsEndWithTheCause(t *testing.T) {
	cc, _ := start(t, nil)
	client := workerv1.NewWorkerClient(cc)
	ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
	defer ctl.Release()
	req := texts(2048, 30)
	req.StreamId = "many"
	ended := make(chan error, 1)
	go func() {
		var last error
		for _, last = range embedder(client).Range(ctx, req) {
		}
		ended <- last
	}()
	polltest.Eventually(t, "the request runs", func() bool {
		info, err := client.Info(t.Context(), &workerv1.InfoRequest{})
		return err == nil && info.GetLoad().GetRunning() > 0
	})
	ctl.Stop(&streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client"), Message: "left"})
	if err := polltest.Receive(t, "the request ends", ended); streamerr.As(err).Reason != streamerr.ClientGone {
		t.Error(err)
	}
	var r *streamv1.Record
	polltest.Eventually(t, "the worker has the ending", func() bool { // its caller has one at once
		why, err := streamv1.NewStreamsClient(cc).Why(t.Context(), &streamv1.WhyRequest{StreamId: "many"})
		if err != nil || len(why.GetHops()) != 1 {
			t.Fatal(why, err)
		}
		r = why.GetHops()[0]
		return r.GetReason() != streamv1.Reason_REASON_UNSPECIFIED && r.GetStopConfirmed() != nil
	})
	if r.GetReason() != streamv1.Reason_REASON_CLIENT_GONE || streamerr.NewPath(r.GetPath()...).String() != "client > caller > llm-worker/0" || r.GetStopConfirmed() == nil {
		t.Error(r)
	}
}

func TestVectorsHaveLengthOneAndTheirUsage(t *testing.T) {
	cc, _ := start(t, nil)
	resp, err := workerv1.NewWorkerClient(cc).Embed(t.Context(), texts(3, 5))
	if err != nil || len(resp.GetEmbeddings()) != 3 || resp.GetModel() != "whence-tiny" || resp.GetEnd().GetUsage().GetPromptTokens() != 15 ||
		streamerr.NewPath(resp.GetEnd().GetPath()...).String() != "engine > llm-worker/0" {
		t.Fatal(resp.GetEnd(), err)
	}
	length := 0.0
	for _, v := range resp.GetEmbeddings()[2].GetValues() {
		length += float64(v) * float64(v)
	}
	if math.Abs(length-1) > 1e-5 {
		t.Error(length)
	}
}

func TestInvalidEmbeddingRequestsAreRefusedByName(t *testing.T) {
	cc, _ := start(t, nil)
	one := uint32(1)
	for name, c := range map[string]struct {
		req    *workerv1.EmbedRequest
		reason streamerr.Reason
		param  string
	}{
		"model":      {&workerv1.EmbedRequest{Model: "other", Inputs: texts(1, 1).GetInputs()}, streamerr.NotFound, "model"},
		"none":       {&workerv1.EmbedRequest{}, streamerr.Invalid, "inputs"},
		"many":       {texts(2049, 1), streamerr.Invalid, "inputs"},
		"long":       {texts(2, 1025), streamerr.Invalid, "inputs[0]"},
		"empty":      {texts(2, 0), streamerr.Invalid, "inputs[0]"},
		"dimensions": {&workerv1.EmbedRequest{Inputs: texts(1, 1).GetInputs(), Dimensions: &one}, streamerr.Invalid, "dimensions"},
		"id":         {&workerv1.EmbedRequest{StreamId: "a b", Inputs: texts(1, 1).GetInputs()}, streamerr.Invalid, "stream_id"},
	} {
		_, err := workerv1.NewWorkerClient(cc).Embed(t.Context(), c.req)
		if e := streamerr.FromGRPC("llm-worker/0", err); e == nil || e.Reason != c.reason || e.Param != c.param {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnswerThatExceedsAMessageIsRefused(t *testing.T) {
	s := worker.NewServer("w", "m", nil, func() *llmv1.WorkerInfo { return &llmv1.WorkerInfo{Embeds: true} }, slog.New(slog.DiscardHandler))
	s.Embeds(stream.Unary(func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
		return &workerv1.EmbedResponse{
			Embeddings: []*llmv1.Embedding{{Values: make([]float32, 4<<20)}}, End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED},
		}, nil
	}))
	if _, err := s.Embed(t.Context(), texts(1, 1)); streamerr.FromGRPC("w", err).Param != "inputs" {
		t.Error(err)
	}
	plain := worker.NewServer("w", "m", nil, func() *llmv1.WorkerInfo { return &llmv1.WorkerInfo{} }, slog.New(slog.DiscardHandler))
	if _, err := plain.Embed(t.Context(), texts(1, 1)); streamerr.FromGRPC("w", err).Param != "model" {
		t.Error(err)
	}
}

func TestInvalidScoreRequestsAreRefusedByName(t *testing.T) {
	s := worker.NewServer("w", "m", nil, func() *llmv1.WorkerInfo { return &llmv1.WorkerInfo{Scores: true} }, slog.New(slog.DiscardHandler))
	s.Scores(stream.Unary(func(_ context.Context, req *workerv1.ScoreRequest) (*workerv1.ScoreResponse, error) {
		return &workerv1.ScoreResponse{Scores: make([]float32, len(req.GetDocuments())), End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}, nil
	}))
	for param, req := range map[string]*workerv1.ScoreRequest{
		"":          {Queries: []string{"q", "r"}, Documents: []string{"a", "b"}},
		"queries":   {Queries: []string{"q", "r"}, Documents: []string{"a", "b", "c"}},
		"documents": {Queries: []string{"q"}},
		"model":     {Model: "other", Queries: []string{"q"}, Documents: []string{"a"}},
		"stream_id": {StreamId: "a b", Queries: []string{"q"}, Documents: []string{"a"}},
	} {
		resp, err := s.Score(t.Context(), req)
		if param == "" {
			if err != nil || len(resp.GetScores()) != 2 {
				t.Error(resp, err)
			}
		} else if streamerr.FromGRPC("w", err).Param != param {
			t.Errorf("%s: %v", param, err)
		}
	}
	cc, _ := start(t, nil)
	_, err := workerv1.NewWorkerClient(cc).Score(t.Context(), &workerv1.ScoreRequest{Queries: []string{"q"}, Documents: []string{"a"}})
	if e := streamerr.FromGRPC("w", err); e.Reason != streamerr.Invalid || e.Param != "model" {
		t.Errorf("the embedded engine: %v", err)
	}
}

// TestAWorkerThatOnlyPoolsSaysWhatItMakes: its caller may not know that it does not generate.
func TestAWorkerThatOnlyPoolsSaysWhatItMakes(t *testing.T) {
	info := &llmv1.WorkerInfo{Scores: true, PoolsOnly: true, Capabilities: &llmv1.Capabilities{Upstream: "vllm"}}
	s := worker.NewServer("llm-worker/0", "m", nil, func() *llmv1.WorkerInfo { return proto.CloneOf(info) }, slog.New(slog.DiscardHandler))
	ln := bufconn.Listen(1 << 20)
	gs := grpc.NewServer()
	s.Register(gs)
	var wg sync.WaitGroup
	wg.Go(func() { _ = gs.Serve(ln) })
	defer wg.Wait()
	defer gs.Stop()
	cc, err := grpc.NewClient("passthrough:///w", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return ln.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	for _, err := range rpc.Dial("caller", "llm-worker/0", workerv1.NewWorkerClient(cc).Generate, methods.Worker).Range(t.Context(), request(1)) {
		if e := streamerr.As(err); e.Reason != streamerr.Invalid || e.Param != "model" || !strings.Contains(e.Text(), "/v1/rerank") || strings.Contains(e.Text(), "embeddings") {
			t.Error(err)
		}
	}
}
