package worker_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/llm-worker/engine/sglang/sglangtest"
	"github.com/whence-dev/whence/llm-worker/engine/sim"
	"github.com/whence-dev/whence/llm-worker/engine/vllm/vllmtest"
	"github.com/whence-dev/whence/llm-worker/kvevents/upstream"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// completions starts a server that answers with one token in five milliseconds, up to the requested
// number. After breakAt tokens it breaks the connection.
func completions(t *testing.T, addr string, breakAt int) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"tiny","owned_by":"vllm"}]}`)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if besidetest.IsTrial(r.Header.Get("X-Request-Id")) {
			besidetest.Complete(w, asked, true, false)
			return
		}
		limit, _ := asked["max_tokens"].(float64)
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := range int(limit) {
			if i == breakAt {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"x\",\"token_ids\":[%d]}]}\n\n", 100+i)
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n")
	})
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: ln, Config: &http.Server{Handler: mux}}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// awaitHealth waits until a worker reports this status.
func awaitHealth(t *testing.T, client healthpb.HealthClient, want healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	polltest.Eventually(t, fmt.Sprint("the worker is ", want), func() bool {
		resp, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: workerv1.Worker_ServiceDesc.ServiceName})
		return err == nil && resp.GetStatus() == want
	})
}

func TestUpstreamKeepsTheContract(t *testing.T) {
	upstream := completions(t, "127.0.0.1:0", -1)
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
		cc, _ := start(t, func(c *worker.Config) {
			c.Engine, c.Upstream.Upstream, c.MaxRunning, c.Model, c.ModelName = worker.OpenAI, upstream.URL, 32, tinyDirectory, whencetiny.Name
		})
		awaitHealth(t, healthpb.NewHealthClient(cc), healthpb.HealthCheckResponse_SERVING)
		client := workerv1.NewWorkerClient(cc)
		return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
			Engine: rpc.Dial("caller", "llm-worker/0", client.Generate, methods.Worker),
			Short:  func() *workerv1.TokenRequest { return request(3) },
			Long:   func() *workerv1.TokenRequest { return request(1000) },
			Bad:    func() *workerv1.TokenRequest { return &workerv1.TokenRequest{Prompt: []uint32{1 << 30}} },
			Live: func() int {
				info, err := client.Info(t.Context(), &workerv1.InfoRequest{})
				if err != nil {
					return 0 // the test is over
				}
				return int(info.GetLoad().GetRunning())
			},
		}
	})
}

func TestWorkerIsHealthyWhileItsUpstreamIs(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // reserves a free port
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	cc, _ := start(t, func(c *worker.Config) {
		c.Engine, c.Upstream.Upstream, c.Model, c.ModelName = worker.OpenAI, "http://"+addr, tinyDirectory, whencetiny.Name
	})
	client, health := workerv1.NewWorkerClient(cc), healthpb.NewHealthClient(cc)
	awaitHealth(t, health, healthpb.HealthCheckResponse_NOT_SERVING)
	if info, err := client.Info(t.Context(), &workerv1.InfoRequest{}); err != nil || info.GetCapabilities() != nil || info.GetEngine() != "openai" || info.GetVocabSize() != 1536 {
		t.Error(info, err)
	}

	upstream := completions(t, addr, 5)
	awaitHealth(t, health, healthpb.HealthCheckResponse_SERVING)
	info, err := client.Info(t.Context(), &workerv1.InfoRequest{})
	if can := info.GetCapabilities(); err != nil || can.GetPrompt() != llmv1.Form_FORM_TOKEN_IDS || can.GetUpstream() != "vllm" || len(can.GetSampling()) != len(features.OpenAIVLLM.Sampling()) ||
		!strings.Contains(info.GetServer(), "could not be proved") { // it does not tell the tokens of texts
		t.Error(info, err)
	}
	tokens := 0
	var last error
	for out, err := range rpc.Dial("caller", "llm-worker/0", client.Generate, methods.Worker).Range(t.Context(), request(10)) {
		tokens += len(out.GetTokens().GetIds())
		last = err
	}
	if e := streamerr.As(last); last == nil || e.Reason != streamerr.PeerLost || e.Path.String() != "engine > llm-worker/0" || tokens != 5 {
		t.Error(tokens, last)
	}

	upstream.Close()
	awaitHealth(t, health, healthpb.HealthCheckResponse_NOT_SERVING)
}

func TestServersThatReportTheirModel(t *testing.T) {
	for kind, dialect := range map[string]besidetest.Dialect{worker.VLLM: vllmtest.Dialect(), worker.SGLang: sglangtest.Scheduler()} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			upstream := besidetest.Start(t, dialect, besidetest.Count, "")
			cc, _ := start(t, func(c *worker.Config) { c.Engine, c.Upstream.Upstream, c.MaxRunning = kind, upstream.Addr, 32 })
			client := workerv1.NewWorkerClient(cc)
			awaitHealth(t, healthpb.NewHealthClient(cc), healthpb.HealthCheckResponse_SERVING)
			info, err := client.Info(t.Context(), &workerv1.InfoRequest{})
			if err != nil || info.GetModel() != "tiny" || info.GetEngine() != kind || info.GetContextLength() != besidetest.Context || info.GetVocabSize() != besidetest.Vocab ||
				!slices.Equal(info.GetEosTokenIds(), []uint32{besidetest.EOS}) || info.GetContinues() || !info.GetResumes() || info.GetCapabilities().GetUpstream() != kind {
				t.Error(info, err)
			}
			engine := rpc.Dial("caller", "llm-worker/0", client.Generate, methods.Worker)
			for _, c := range []struct {
				model     string
				generated uint32
				tokens    int
				reason    streamerr.Reason
			}{{"tiny", 0, 5, streamerr.Completed}, {"", 2, 3, streamerr.Completed}, {"other", 0, 0, streamerr.NotFound}} {
				req := request(5)
				req.Model, req.Generated = c.model, c.generated
				tokens, reason := 0, streamerr.Completed
				for out, err := range engine.Range(t.Context(), req) {
					if tokens += len(out.GetTokens().GetIds()); err != nil {
						reason = streamerr.As(err).Reason
					}
				}
				if tokens != c.tokens || reason != c.reason {
					t.Errorf("%+v: %d tokens, %v", c, tokens, reason)
				}
			}
		})
	}
}

func TestEmbeddedEngineHonoursEverything(t *testing.T) {
	cc, _ := start(t, nil)
	info, err := workerv1.NewWorkerClient(cc).Info(t.Context(), &workerv1.InfoRequest{})
	can := info.GetCapabilities()
	if err != nil || can.GetPrompt() != llmv1.Form_FORM_TOKEN_IDS || can.GetAnswer() != llmv1.Form_FORM_TOKEN_IDS || can.GetUpstream() != "" ||
		len(can.GetSampling()) != len(sample.Fields()) || !slices.Contains(can.GetSampling(), "stop_token_ids") || !slices.Contains(can.GetSampling(), "guide") {
		t.Error(can, err)
	}
}

// tinyDirectory is the directory of the embedded model.
var tinyDirectory = filepath.Join("..", "..", "internal", "whencetiny", "model")

func TestEngineThatDoesNotExistIsRefused(t *testing.T) {
	var first beside.Rank
	if err := first.Set("0"); err != nil || first == (beside.Rank{}) {
		t.Fatal(first, err)
	}
	for want, c := range map[string]worker.Config{
		"--engine is":             {Engine: "magic"},
		"--upstream is":           {Engine: worker.OpenAI},
		"--upstream is \"h":       {Engine: worker.VLLM, Upstream: openai.Options{Options: beside.Options{Upstream: "http://127.0.0.1:50051"}}},
		"--upstream is \"":        {Engine: worker.SGLang},
		"--upstream is \"g":       {Upstream: openai.Options{Options: beside.Options{Upstream: "gpu1"}}},
		"--upstream-model":        {Engine: worker.VLLM, Upstream: openai.Options{Model: "m"}},
		"--upstream-key":          {Engine: worker.SGLang, Upstream: openai.Options{Options: beside.Options{Upstream: "127.0.0.1:30000"}, Key: "k"}},
		"--upstream is o":         {Engine: worker.Embedded, Upstream: openai.Options{Options: beside.Options{Upstream: "http://127.0.0.1:8000"}}},
		"--upstream-kv-events is": {Engine: worker.Sim, Events: upstream.Options{Events: "tcp://127.0.0.1:5557"}},
		"--upstream-kv-events: ":  {Engine: worker.OpenAI, Events: upstream.Options{Events: "127.0.0.1:5557"}},
		"--upstream-rank is of":   {Engine: worker.SGLang, Upstream: openai.Options{Options: beside.Options{Upstream: "127.0.0.1:30000", Rank: first}}},
		"--sim-fail":              {Engine: worker.Sim, Sim: sim.Options{Fail: 2}},
	} {
		c.MaxRunning = 1
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
