package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whence-dev/whence/lab"
)

// llamaBinary is the variable with the directory in which scripts/engines has installed a llama-server of an
// older release. WHENCE_LLAMACPP has the Python of the newest one.
const llamaBinary = "WHENCE_LLAMA_SERVER"

// inOneProcess is what llama.cpp has in the rows about the processes of other servers.
var inOneProcess = map[*claim]string{
	killedCore: "one process", frozenCore: "one process", lostRunner: "one process", ownVectors: "not offered", ownScores: "not offered",
}

var llamaNative = &column{
	file: "llamacpp", server: "llama.cpp", api: "`--engine llamacpp`", version: llamaWheel, lacks: inOneProcess,
	start: func(t *testing.T, args []string) *realServer { return startLlamaWheel(t, "llamacpp", args) },
	sittings: []sitting{
		{name: "one server", short: true, claims: []*claim{
			recognised, greedyAnswers, sampled, likelyTokens, guides, overflow, crowded, leaving, takenOver, frozen, killed,
		}},
		{name: "terminated", short: true, claims: []*claim{terminated}},
		{name: "lost", short: true, claims: []*claim{lostServer}},
	},
}

// llamaOlder is the binary itself, whose ways at SIGTERM the wheel does not have.
var llamaOlder = &column{
	file: "llamacpp-older", server: "an older llama.cpp", api: "`--engine llamacpp`", version: llamaRelease, lacks: inOneProcess, start: startLlamaBinary,
	sittings: []sitting{
		{name: "one server", claims: []*claim{
			recognised, greedyAnswers, sampled, likelyTokens, guides, overflow, crowded, leaving, takenOver, frozen, terminated,
		}},
		{name: "killed", claims: []*claim{killed}},
		{name: "lost", claims: []*claim{lostServer}},
	},
}

var llamaOverOpenAI = &column{
	file: "llamacpp-openai", server: "llama.cpp", api: "`--engine openai`", version: llamaWheel, lacks: answersInText,
	start: func(t *testing.T, args []string) *realServer { return startLlamaWheel(t, "openai", args) },
	sittings: []sitting{
		{name: "one server", short: true, claims: []*claim{recognised, greedyAnswers, sampled, likelyTokens, guides, overflow, crowded, leaving, lostServer}},
		{name: "embeddings", short: true, args: []string{"embeddings"}, claims: []*claim{ownVectors}},
		{name: "scores", short: true, args: []string{"embeddings", "rank"}, claims: []*claim{ownScores}},
	},
}

// answersInText is what a server has whose answers are text: another worker cannot continue them exactly.
var answersInText = func() map[*claim]string {
	all := maps.Clone(inOneProcess)
	for _, c := range []*claim{killed, frozen, terminated, takenOver} {
		all[c] = "its streams do not move"
	}
	return all
}()

// llamaWheel returns the build of the wheel, which is the last part of its version.
func llamaWheel(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(os.Getenv("WHENCE_LLAMACPP"))), "lib", "python*", "site-packages", "xllamacpp-*.dist-info"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the version of llama.cpp is not known: %q, %v", found, err)
	}
	version := strings.TrimSuffix(filepath.Base(found[0]), ".dist-info")
	return "b" + version[strings.LastIndexByte(version, '.')+1:]
}

func llamaRelease(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(os.Getenv(llamaBinary), "version"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// tinyGGUF is whence-tiny as a file of llama.cpp.
func tinyGGUF(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "internal", "whencetiny", "testdata", "model-f32.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startLlamaWheel starts the newest llama.cpp. Four requests at a time share its context.
func startLlamaWheel(t *testing.T, engine string, args []string) *realServer {
	t.Helper()
	python := os.Getenv("WHENCE_LLAMACPP")
	if python == "" {
		missing(t, "there is no llama.cpp here: scripts/engines installs it")
	}
	p := startFile(t, "llama.cpp", python, append([]string{filepath.Join("upstream", "llamacpp.py"), tinyGGUF(t), "4096"}, args...)...)
	p.awaited = true // a claim may have killed it
	const says = "listening on http://"
	addr := strings.TrimPrefix(p.await(t, p.Out, "where it listens", func(line string) bool { return strings.HasPrefix(line, says) }), says)
	t.Cleanup(p.killFamily)
	return onLlama(&realServer{process: p, addr: addr}, engine)
}

func startLlamaBinary(t *testing.T, args []string) *realServer {
	t.Helper()
	dir := os.Getenv(llamaBinary)
	if dir == "" {
		missing(t, "there is no llama-server here: scripts/engines installs it")
	}
	addr := freeAddr(t)
	c := lab.Command{
		Name: "llama-server", File: filepath.Join(dir, "llama-server"), Env: []string{"LD_LIBRARY_PATH=" + dir},
		Args: append([]string{"--model", tinyGGUF(t), "--port", portOf(t, addr), "--ctx-size", "4096", "--parallel", "4", "--threads", "1", "--metrics"}, args...),
	}
	return onLlama(&realServer{process: startReal(t, c, func() bool { return responds(addr, "/props") }), addr: addr}, "llamacpp")
}

// onLlama completes a server with what an engine needs.
func onLlama(s *realServer, engine string) *realServer {
	s.worker = onServer(engine, "http://"+s.addr)
	if s.own = ownOfLlama(s.addr); engine == "openai" {
		s.asks = true
		own := ownOverHTTP(s.addr)
		s.own = func(t *testing.T, a ask) continuation { t.Helper(); return own(t, inLlamasWords(a)) }
	}
	return s
}

// inLlamasWords returns a request with the server's names of fields.
func inLlamasWords(a ask) ask {
	a = maps.Clone(a)
	for _, name := range []string{"repetition_penalty", "frequency_penalty", "presence_penalty"} {
		if a[name] != nil {
			a["repeat_last_n"] = 1024 // our penalties count the whole context
		}
	}
	if penalty := a["repetition_penalty"]; penalty != nil {
		a["repeat_penalty"] = penalty
		delete(a, "repetition_penalty")
	}
	return a
}

// ownOfLlama returns the server's own answers to /completion.
func ownOfLlama(addr string) func(t *testing.T, a ask) continuation {
	stopTypes := map[string]string{"eos": "stop", "limit": "length"}
	return func(t *testing.T, a ask) continuation {
		t.Helper()
		asked := ask{"return_tokens": true, "top_p": 1, "top_k": 0, "min_p": 0, "repeat_penalty": 1} // our defaults
		maps.Copy(asked, inLlamasWords(a))
		asked["n_predict"] = a["max_tokens"]
		if n, ok := a["logprobs"].(int); ok {
			asked["n_probs"] = max(n, 1)
		}
		if biases, ok := a["logit_bias"].(map[string]any); ok {
			var pairs [][]any
			for id, bias := range biases {
				pairs = append(pairs, []any{json.Number(id), bias})
			}
			asked["logit_bias"] = pairs
		}
		r := replyTo(t)((&whence{http: http.DefaultClient}).do(t.Context(), http.MethodPost, "http://"+addr+"/completion", asked))
		type likely struct {
			Token   string
			Logprob float64
			Top     []likely `json:"top_logprobs"`
		}
		var got struct {
			Content   string
			Tokens    []uint32
			StopType  string   `json:"stop_type"`
			Predicted int      `json:"tokens_predicted"`
			Evaluated int      `json:"tokens_evaluated"`
			Likely    []likely `json:"completion_probabilities"`
		}
		if err := json.Unmarshal(r.body, &got); err != nil || r.status != http.StatusOK {
			t.Fatalf("the server answers %v with %d %s: %v", asked, r.status, r.body, err)
		}
		c := continuation{ids: got.Tokens, text: got.Content, finish: stopTypes[got.StopType], prompt: got.Evaluated, completion: got.Predicted}
		for _, p := range got.Likely[:min(len(got.Likely), len(got.Tokens))] {
			c.likely, c.top = append(c.likely, p.Logprob), append(c.top, map[string]float64{})
			for _, t := range p.Top {
				c.top[len(c.top)-1][t.Token] = t.Logprob
			}
		}
		return c
	}
}
