package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
)

var ollamaNative = &column{
	file: "ollama", server: "Ollama", api: "`--engine ollama`", version: ollamaVersion, lacks: answersInText,
	start: func(t *testing.T, args []string) *realServer { return startOllama(t, "ollama", "") },
	sittings: []sitting{
		{name: "one server", short: true, claims: []*claim{recognised, greedyAnswers, sampled, likelyTokens, guides, overflow, crowded, lostRunner, lostServer}},
		leftOllama,
	},
}

// leftOllama is apart, because a client that leaves may block an Ollama: see docs/upstream.
var leftOllama = sitting{name: "left", claims: []*claim{leaving}}

// ollamaOverOpenAI is an Ollama whose model has no template of its own: see docs/howto/engines.md.
var ollamaOverOpenAI = &column{
	file: "ollama-openai", server: "Ollama", api: "`--engine openai`", version: ollamaVersion, lacks: answersInText,
	start: func(t *testing.T, args []string) *realServer {
		return startOllama(t, "openai", "TEMPLATE {{ .Prompt }}\n")
	},
	sittings: []sitting{
		{name: "one server", claims: []*claim{recognised, greedyAnswers, sampled, likelyTokens, guides, overflow, crowded, lostRunner, lostServer}},
		leftOllama,
	},
}

var lostRunner = &claim{"kill -9 of Ollama's runner: the stream ends with `peer_lost`", func(t *testing.T, s *realServer) string {
	return playLost(t, s, func() { _ = syscall.Kill(s.child(t, "llama-server"), syscall.SIGKILL) })
}}

// findOllama returns the program, which nothing here can install: it must be on the PATH.
func findOllama(t *testing.T) string {
	t.Helper()
	file, err := exec.LookPath("ollama")
	if err != nil {
		t.Skip("there is no ollama on the PATH")
	}
	return file
}

func ollamaVersion(t *testing.T) string {
	t.Helper()
	out, _ := exec.CommandContext(t.Context(), findOllama(t), "--version").Output() // it warns that no server runs
	for line := range strings.Lines(string(out)) {
		if _, version, ok := strings.Cut(line, "version is "); ok {
			return strings.TrimSpace(version)
		}
	}
	t.Fatalf("ollama --version says %s", out)
	return ""
}

// startOllama starts an Ollama with whence-tiny, whose Modelfile has more lines.
func startOllama(t *testing.T, engine, more string) *realServer {
	t.Helper()
	file, dir, addr := findOllama(t), t.TempDir(), freeAddr(t)
	env := []string{"OLLAMA_HOST=" + addr, "OLLAMA_MODELS=" + filepath.Join(dir, "models"), "OLLAMA_CONTEXT_LENGTH=1024", "HOME=" + dir}
	p := startReal(t, lab.Command{Name: "Ollama", File: file, Args: []string{"serve"}, Env: env}, func() bool { return responds(addr, "/api/version") })
	modelfile := filepath.Join(dir, "Modelfile")
	if err := os.WriteFile(modelfile, []byte("FROM "+tinyGGUF(t)+"\n"+more), 0o600); err != nil {
		t.Fatal(err)
	}
	create := exec.CommandContext(t.Context(), file, "create", model, "-f", modelfile)
	create.Env = append(os.Environ(), env...)
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := &realServer{process: p, addr: addr, worker: onServer(engine, "http://"+addr), asks: true, endless: []any{}}
	if s.own = ownOfOllama(addr); engine == "openai" {
		s.own = ownOverHTTPInText(addr)
	}
	return s
}

// asText returns a request with its prompt as text.
func asText(a ask) ask {
	a = maps.Clone(a)
	a["prompt"] = besidetest.Tiny().Decode(a["prompt"].([]uint32), false)
	return a
}

// ownOverHTTPInText is ownOverHTTP for a server that takes text alone.
func ownOverHTTPInText(addr string) func(t *testing.T, a ask) continuation {
	own := ownOverHTTP(addr)
	return func(t *testing.T, a ask) continuation { t.Helper(); return own(t, asText(a)) }
}

// ownOfOllama returns the server's own answers to /api/generate.
func ownOfOllama(addr string) func(t *testing.T, a ask) continuation {
	return func(t *testing.T, a ask) continuation {
		t.Helper()
		a = asText(a)
		options := ask{"top_p": 1, "top_k": 0, "min_p": 0, "repeat_penalty": 1} // our defaults
		maps.Copy(options, inLlamasWords(a))
		options["num_predict"] = a["max_tokens"]
		asked := ask{"model": model, "prompt": a["prompt"], "raw": true, "stream": false, "truncate": false, "options": options}
		if n, ok := a["logprobs"].(int); ok {
			asked["logprobs"], asked["top_logprobs"] = true, n
		}
		r := replyTo(t)((&whence{http: http.DefaultClient}).do(t.Context(), http.MethodPost, "http://"+addr+"/api/generate", asked))
		type likely struct {
			Token   string
			Logprob float64
			Top     []likely `json:"top_logprobs"`
		}
		var got struct {
			Response   string
			Reason     string `json:"done_reason"`
			Prompt     int    `json:"prompt_eval_count"`
			Completion int    `json:"eval_count"`
			Logprobs   []likely
		}
		if err := json.Unmarshal(r.body, &got); err != nil || r.status != http.StatusOK {
			t.Fatalf("the server answers %v with %d %s: %v", asked, r.status, r.body, err)
		}
		c := continuation{text: got.Response, finish: got.Reason, prompt: got.Prompt, completion: got.Completion}
		for _, p := range got.Logprobs {
			c.likely, c.top = append(c.likely, p.Logprob), append(c.top, map[string]float64{})
			for _, t := range p.Top {
				c.top[len(c.top)-1][t.Token] = t.Logprob
			}
		}
		return c
	}
}
