package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/lab"
)

// llamaVersion must equal the version in scripts/goldens-engine.
const llamaVersion = "3.22.1"

// llamaDir installs llama.cpp, prebuilt for one platform, unless it is installed, and returns the
// directory of the server that uses it. There is no lockfile: with a lockfile npm would install the
// builds for all platforms and GPUs, 725 MB.
func llamaDir(t *testing.T, npm string) string {
	t.Helper()
	platform, ok := map[string]string{"linux/amd64": "linux-x64", "linux/arm64": "linux-arm64"}[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok {
		missing(t, "there is no llama.cpp for %s/%s here", runtime.GOOS, runtime.GOARCH)
	}
	dir, err := filepath.Abs(filepath.Join("..", ".cache", "llama-"+llamaVersion))
	if err != nil {
		t.Fatal(err)
	}
	installing.Lock()
	defer installing.Unlock()
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err != nil {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), npmPatience)
		defer cancel()
		cmd := exec.CommandContext(ctx, npm, "install", "--prefix", dir, "--omit=optional", "--ignore-scripts", "--no-package-lock", "--no-fund", "--no-audit",
			"node-llama-cpp@"+llamaVersion, "@node-llama-cpp/"+platform+"@"+llamaVersion)
		if out, err := cmd.CombinedOutput(); err != nil {
			missing(t, "%v: %v\n%s", cmd, err, out)
		}
		if err := os.WriteFile(done, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	server, err := os.ReadFile(filepath.Join("upstream", "server.mjs"))
	if err == nil { // beside its packages, where node looks for modules
		err = os.WriteFile(filepath.Join(dir, "server.mjs"), server, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// onServer returns the flags of a worker whose engine is a server that runs whence-tiny.
func onServer(engine, url string) []string {
	return []string{"--engine", engine, "--upstream", url, "--model", filepath.Join("..", "internal", "whencetiny", "model"), "--model-name", model}
}

// llamaServer starts the server, and returns its URL.
func llamaServer(t *testing.T, kind string, contextLength int) (p *process, url string) {
	t.Helper()
	gguf, err := filepath.Abs(filepath.Join("..", "internal", "whencetiny", "testdata", "model-f32.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if python := os.Getenv("WHENCE_LLAMACPP"); python != "" { // scripts/llamacpp: the server itself
		p = startFile(t, "llama.cpp", python, filepath.Join("upstream", "llamacpp.py"), gguf, strconv.Itoa(contextLength))
	} else {
		node, npm := tool(t, "node"), tool(t, "npm")
		dir := llamaDir(t, npm)
		p = startFile(t, "llama.cpp", node, filepath.Join(dir, "server.mjs"), gguf, kind, strconv.Itoa(contextLength))
	}
	const says = "listening on "
	line := p.await(t, p.Out, "where it listens", func(line string) bool { return strings.HasPrefix(line, says) })
	return p, strings.TrimPrefix(line, says)
}

// askedOfBoth are prompts for the embedded engine and for llama.cpp.
var askedOfBoth = []string{
	short, long, "What is Whence?", "What does the chat-service do?", "Define TTFT.", "How do I stop the stream?", "Who are you, please?",
	"Tell me a short story about Freya.", "Count to 40.", "What is 7 + 8?", "What is 7 multiplied by 8?", "Write the 6 times table up to 20.",
	"What is the capital of Iceland?", "Say hello in many languages.", "你好", "こんにちは。", "How would you say \"friend\" in Russian?",
	"Send me emojis. 🚀🌙", "Write fibonacci in Python.", "Give me the capital of Italy in JSON.",
}

func TestServerBesideTheWorkerAnswersLikeTheEmbeddedEngine(t *testing.T) {
	t.Parallel()
	tool(t, "node")
	embedded := run(t, allInOne, flags{})
	kinds := map[string]string{"vllm": "openai", "llamacpp": "openai", "library": "openai", "native": "llamacpp"}
	if os.Getenv("WHENCE_LLAMACPP") != "" {
		kinds = map[string]string{"llamacpp": "openai", "native": "llamacpp"}
	}
	for kind, engine := range kinds {
		_, url := llamaServer(t, kind, 4*1024) // shared by four
		beside := run(t, separate, flags{worker: onServer(engine, url)})
		for _, prompt := range askedOfBoth {
			want := embedded.post(t, greedy(prompt, "max_tokens", 150)).completion(t)
			got := beside.post(t, greedy(prompt, "max_tokens", 150)).completion(t)
			if len(got.Choices) != 1 || got.Choices[0] != want.Choices[0] || *got.Usage != *want.Usage {
				t.Errorf("%s, %q:\n got %+v, %+v, %+v\nwant %+v, %+v", kind, prompt, got.Choices, got.Usage, got.Error, want.Choices, want.Usage)
			}
		}
		beside.idle(t)
	}
}

func TestClientThatLeavesStopsTheServerBesideTheWorker(t *testing.T) {
	t.Parallel()
	// With the model's own context the answer would end before its CPU use could be observed.
	const contextLength = 1 << 16
	dir := wideModel(t, contextLength)
	llama, url := llamaServer(t, "vllm", 4*contextLength)
	w := run(t, allInOne, flags{worker: []string{"--engine", "openai", "--upstream", url, "--model", dir, "--model-name", model}})

	const window = 300 * time.Millisecond
	used := func() time.Duration {
		before := llama.cpu(t)
		lab.Pause(t.Context(), window) // the measured interval
		return llama.cpu(t) - before
	}
	l := w.open(t, greedy(long, "ignore_eos", true)).begun(t)
	polltest.Eventually(t, "llama.cpp generates", func() bool { return used() >= window/6 })
	l.close()
	w.idle(t)
	polltest.Eventually(t, "the server does nothing", func() bool { return used() <= window/30 })
	polltest.Eventually(t, "the worker has reported its story", func() bool { return w.why(t, l.id).State == "ended" })
	s := w.why(t, l.id)
	// vLLM has stopped when the connection is closed; a llama.cpp that is not asked for its slots may not have.
	confirms := os.Getenv("WHENCE_LLAMACPP") == ""
	if last := s.Hops[len(s.Hops)-1]; s.Reason != "client_gone" || s.Origin != "client" || last.StopHeardMS == nil || (last.StopConfirmedMS != nil) != confirms {
		t.Errorf("%+v", s)
	}
}
