package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/loopback"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/llm-worker/worker"
)

// tinyModel returns the directory of whence-tiny.
func tinyModel(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../internal/whencetiny/model")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// lists serves the list of models of a vLLM whose model was started from root.
func lists(root string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{"data":[{"id":"acme/llama-9","owned_by":"vllm","root":%q,"max_model_len":1024}]}`, root)
	})
}

func at(address string) worker.Config {
	return worker.Config{Upstream: openai.Options{Options: beside.Options{Upstream: address}}}
}

func TestAConfigurationIsCompletedByItsServer(t *testing.T) {
	t.Parallel()
	dir := tinyModel(t)
	server := httptest.NewServer(lists(dir))
	t.Cleanup(server.Close) // after the parallel tests
	plain := strings.TrimPrefix(server.URL, "http://")
	for name, test := range map[string]struct {
		change func(c *worker.Config)
		model  string // in requests
		engine string
	}{
		"only the address":       {func(*worker.Config) {}, "acme/llama-9", worker.OpenAI},
		"without a scheme":       {func(c *worker.Config) { c.Upstream.Upstream = plain }, "acme/llama-9", worker.OpenAI},
		"an engine":              {func(c *worker.Config) { c.Engine = worker.LlamaCPP }, "acme/llama-9", worker.LlamaCPP},
		"files":                  {func(c *worker.Config) { c.Model = dir }, "", worker.OpenAI}, // as chat-service has it
		"files of both":          {func(c *worker.Config) { c.Model, c.Files = dir, true }, "acme/llama-9", worker.OpenAI},
		"a name":                 {func(c *worker.Config) { c.ModelName = "m" }, "m", worker.OpenAI},
		"only the server's name": {func(c *worker.Config) { c.Upstream.Model = "acme/llama-9" }, "acme/llama-9", worker.OpenAI},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := at(server.URL)
			test.change(&c)
			aliases, err := c.Recognize(t.Context(), slog.New(slog.DiscardHandler), nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.ModelName != test.model || c.Engine != test.engine || c.Model != dir || c.Upstream.Upstream != server.URL {
				t.Errorf("%q, engine %s, files %s, at %s", c.ModelName, c.Engine, c.Model, c.Upstream.Upstream)
			}
			if wants := test.model == "m"; slices.Contains(aliases, "acme/llama-9") != wants {
				t.Errorf("aliases %q", aliases)
			}
			if !strings.HasPrefix(c.Server, "vLLM, with a context of 1024 tokens") {
				t.Error(c.Server)
			}
			if again, err := c.Recognize(t.Context(), nil, nil); again != nil || err != nil { // it is complete
				t.Error(again, err)
			}
		})
	}
}

// TestWorkerAnswersToBothNames: to its server's name, acme/llama-9, and to the name that a chat-service with
// --model acme/llama-9 uses. If the operator gives a name, it is the only one.
func TestWorkerAnswersToBothNames(t *testing.T) {
	server := httptest.NewServer(lists(tinyModel(t)))
	t.Cleanup(server.Close)
	for name, aliases := range map[string][]string{"": {"llama-9"}, "m": nil} {
		conn, _ := start(t, func(c *worker.Config) { c.Upstream.Upstream, c.ModelName = server.URL, name })
		client := workerv1.NewWorkerClient(conn)
		var info *llmv1.WorkerInfo
		polltest.Eventually(t, "the worker describes its model", func() (ok bool) {
			var err error
			info, err = client.Info(t.Context(), &workerv1.InfoRequest{})
			return err == nil
		})
		if info.GetModel() != cmp.Or(name, "acme/llama-9") || !slices.Equal(info.GetAliases(), aliases) {
			t.Errorf("%q, aliases %q", info.GetModel(), info.GetAliases())
		}
		for _, asked := range []string{"acme/llama-9", "llama-9", "m", "other"} {
			_, err := client.Embed(t.Context(), &workerv1.EmbedRequest{Model: asked})
			if served := asked == info.GetModel() || slices.Contains(aliases, asked); (status.Code(err) == codes.NotFound) == served {
				t.Errorf("%q is asked for %q: %v", info.GetModel(), asked, err)
			}
		}
	}
}

// TestAServerNamesItsFilesByARelativePath: vllm serve models/llama, whose path looks like the id of a model.
func TestAServerNamesItsFilesByARelativePath(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the working directory of another process is known on Linux only")
	}
	t.Chdir(filepath.Dir(tinyModel(t)))
	server := httptest.NewServer(lists("model"))
	t.Cleanup(server.Close)
	c := at(server.URL)
	if _, err := c.Recognize(t.Context(), slog.New(slog.DiscardHandler), nil); err != nil || !filepath.IsAbs(c.Model) || filepath.Base(c.Model) != "model" {
		t.Errorf("%s, %v", c.Model, err)
	}
}

// TestAServerWithoutFilesIsUsedTextOnly: with the files of another model, the server would be asked, and
// read, in another vocabulary. An engine that needs files is refused.
func TestAServerWithoutFilesIsUsedTextOnly(t *testing.T) { //nolint:paralleltest // it changes the environment
	t.Setenv("HF_HOME", t.TempDir())
	for root, want := range map[string]string{
		"":              "neither a path nor an id",
		"Qwen/Qwen3-8B": "--no-download forbids",
		t.TempDir():     "the path that the server names",
	} {
		server := httptest.NewServer(lists(root))
		var lines logtest.Log
		c := at(server.URL)
		c.NoDownload = true
		log := slog.New(slog.NewTextHandler(&lines, nil))
		if _, err := c.Recognize(t.Context(), log, nil); err != nil || c.Model != textonly.Model || c.Engine != worker.OpenAI || c.ModelName != "acme/llama-9" || c.Upstream.Model != "acme/llama-9" {
			t.Errorf("%q: %v, %q, engine %s, %q", root, err, c.Model, c.Engine, c.ModelName)
		}
		if text := lines.String(); !strings.Contains(text, "text only") || !strings.Contains(text, want) || !strings.Contains(text, "--model names them") {
			t.Errorf("%q: no %q in %s", root, want, text)
		}
		c = at(server.URL)
		c.NoDownload, c.Engine = true, worker.LlamaCPP
		if _, err := c.Recognize(t.Context(), log, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "text only needs --engine openai or auto") {
			t.Errorf("%q with an engine: %v", root, err)
		}
		server.Close()
	}
	server := httptest.NewServer(lists(tinyModel(t)))
	defer server.Close()
	c := at(server.URL)
	c.Model = textonly.Model
	if _, err := c.Recognize(t.Context(), slog.New(slog.DiscardHandler), nil); err != nil || c.Model != textonly.Model || c.Engine != worker.OpenAI || c.ModelName != "acme/llama-9" {
		t.Errorf("--model none: %v, %q, engine %s, %q", err, c.Model, c.Engine, c.ModelName)
	}
}

// TestAServerThatOnlyPoolsNeedsNoFiles: it embeds and rates texts as they are, whatever files there are.
func TestAServerThatOnlyPoolsNeedsNoFiles(t *testing.T) {
	t.Parallel()
	models := lists(tinyModel(t))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/pooling" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		models.ServeHTTP(w, r)
	}))
	defer server.Close()
	var lines logtest.Log
	c := at(server.URL)
	if _, err := c.Recognize(t.Context(), slog.New(slog.NewTextHandler(&lines, nil)), nil); err != nil || c.Model != textonly.Model || c.Engine != worker.OpenAI || c.ModelName != "acme/llama-9" {
		t.Errorf("%v, %q, engine %s, %q", err, c.Model, c.Engine, c.ModelName)
	}
	if text := lines.String(); strings.Contains(text, "WARN") || !strings.Contains(text, "none are needed") || !strings.Contains(c.Server, "none are needed") {
		t.Error(text, c.Server)
	}
	c = at(server.URL)
	c.Model = tinyModel(t)
	if _, err := c.Recognize(t.Context(), slog.New(slog.DiscardHandler), nil); err != nil || c.Model != tinyModel(t) {
		t.Error(c.Model, err)
	}
}

// TestAServerThatIsNotThereIsAwaited: its worker says what it waits for, and starts once the server answers.
func TestAServerThatIsNotThereIsAwaited(t *testing.T) {
	t.Parallel()
	addr, err := loopback.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	var lines logtest.Log
	c := at("http://" + addr)
	waits := make(chan string, 100)
	done := make(chan error, 1)
	go func() {
		_, err := c.Recognize(t.Context(), slog.New(slog.NewTextHandler(&lines, nil)), func(problem string) { waits <- problem })
		done <- err
	}()
	if problem := polltest.Receive(t, "what it waits for", waits); !strings.Contains(problem, "nothing listens") || strings.Contains(problem, addr) {
		t.Error(problem)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: ln, Config: &http.Server{Handler: lists(tinyModel(t))}} //nolint:gosec // a test
	server.Start()
	defer server.Close()
	if err := polltest.Receive(t, "the recognition", done); err != nil {
		t.Error(err)
	}
	for len(waits) > 1 {
		<-waits
	}
	if problem := <-waits; problem != "" {
		t.Errorf("it still waits: %s", problem)
	}
	if text := lines.String(); strings.Count(text, "waiting for a model server") != 1 || !strings.Contains(text, addr) {
		t.Error(text)
	}
}

func TestACallerThatLeavesEndsTheWait(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := at("http://127.0.0.1:1")
	_, err := c.Recognize(ctx, slog.New(slog.DiscardHandler), func(string) { cancel() })
	if err == nil {
		t.Error("no error")
	}
}
