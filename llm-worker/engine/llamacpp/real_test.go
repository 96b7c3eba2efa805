package llamacpp_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/llm-worker/engine/llamacpp"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
)

// realServer starts llama.cpp's own server, which scripts/llamacpp installs, and returns an engine on it.
func realServer(t *testing.T) *llamacpp.Engine {
	t.Helper()
	e, healthy := watchReal(t, model(t))
	polltest.Receive(t, "the server is healthy", healthy)
	return e
}

// watchReal starts the server, and an engine on it with the files of a model.
func watchReal(t *testing.T, files *lexicon.Model) (e *llamacpp.Engine, healthy chan bool) {
	t.Helper()
	python := os.Getenv("WHENCE_LLAMACPP")
	if python == "" {
		t.Skip("scripts/llamacpp plays the engine against llama.cpp's own server")
	}
	root := filepath.Join("..", "..", "..")
	cmd := exec.CommandContext(t.Context(), python, filepath.Join(root, "e2e", "upstream", "llamacpp.py"),
		filepath.Join(root, "internal", "whencetiny", "testdata", "model-f32.gguf"), "4096")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // t's context has killed it
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("the server says %q: %v", line, err)
	}
	e = llamacpp.New(files, llamacpp.Options{Options: beside.Options{Upstream: url, MaxRunning: 32}})
	ctx, cancel := context.WithCancel(context.Background())
	healthy = make(chan bool, 100)
	var wg sync.WaitGroup
	wg.Go(func() { e.Watch(ctx, func(ok bool) { healthy <- ok }) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return e, healthy
}

// TestRealLlamaCPPIsProvedToRunTheModel: the server has the vocabulary of the worker's files, or is refused.
func TestRealLlamaCPPIsProvedToRunTheModel(t *testing.T) {
	if e := realServer(t); len(e.Upstream().Notes) > 0 {
		t.Errorf("the server runs whence-tiny, and the operator reads %q", e.Upstream().Notes)
	}
	other, err := lexicon.Load(besidetest.OtherModel(t))
	if err != nil {
		t.Fatal(err)
	}
	other.Name = "other"
	e, healthy := watchReal(t, other)
	polltest.Eventually(t, "the server is refused", func() bool {
		return strings.Contains(e.Problem(), `runs "model-f32.gguf", and the model files of the worker (--model other) have other tokens`)
	})
	if len(healthy) > 0 {
		t.Error("a server of another model is healthy")
	}
	t.Log(e.Problem())
}

// TestRealLlamaCPPPassesTheContract. The model answers in less than a second, so that no request takes
// long.
func TestRealLlamaCPPPassesTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
		e := realServer(t)
		return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
			Sequence: e.Generate,
			Short:    func() *workerv1.TokenRequest { return besidetest.Ask(5) },
			Bad:      func() *workerv1.TokenRequest { return new(workerv1.TokenRequest) },
			Live:     func() int { return int(e.Load().GetRunning() + e.Load().GetQueued()) },
		}
	})
}

// TestRealLlamaCPPTakesEveryField: no request that the engine accepts may be one that the server refuses.
func TestRealLlamaCPPTakesEveryField(t *testing.T) {
	e := realServer(t)
	everything := besidetest.Everything(features.LlamaCPP.Sampling())
	for name, s := range map[string]*llmv1.Sampling{
		"nothing":     {},
		"everything":  everything,
		"with a seed": {Seed: proto.Uint64(1<<63 + 1)},
		"the limits": {
			Temperature: proto.Float32(2), TopP: proto.Float32(1), TopK: proto.Uint32(1 << 20), MinP: proto.Float32(1), RepetitionPenalty: proto.Float32(100),
			FrequencyPenalty: proto.Float32(-2), PresencePenalty: proto.Float32(2),
		},
		"log-probabilities": {Logprobs: proto.Uint32(20), FrequencyPenalty: proto.Float32(0.5)},
		"a schema":          {Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"enum":["a","b"]}`}}}},
		"a grammar":         {Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"enum":["a"]}`, After: "."}}}},
	} {
		s.MaxTokens = proto.Uint32(9)
		if r := besidetest.Read(t.Context(), e, &workerv1.TokenRequest{Prompt: []uint32{10, 11, 12}, Sampling: s}, nil); r.Err != nil || r.End == nil {
			t.Errorf("%s: %v", name, r.Err)
		}
	}
}
