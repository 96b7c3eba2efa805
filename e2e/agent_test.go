package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/internal/whencetiny"
)

// An agent is a program that lets a model call tools. It is installed from npm, and only the
// address of its service is changed.
type agent struct {
	script string // starts the agent; a path in node_modules of the directory agents
	tool   string // called by the model
	call   map[string]any
	args   func(url string) []string
	env    func(home, url string) []string
	// read parses a line of the agent's output.
	read func(line []byte) agentEvent
}

// An agentEvent is a line of an agent's output.
type agentEvent struct {
	result  string // the result of a tool
	answer  string // the agent's final text
	failure string // why the agent has no answer
}

const (
	agentQuestion = "Which word is in the file word.txt?"
	agentAnswer   = "The word in the file is "
	readWord      = "cat word.txt"
)

// codex is OpenAI's agent, which uses the Responses API.
var codex = agent{
	script: "@openai/codex/bin/codex.js", tool: "exec_command", call: map[string]any{"cmd": readWord},
	args: func(url string) []string {
		args := []string{"exec", "--json", "--ephemeral", "--skip-git-repo-check", "--disable", "plugins", "--disable", "apps", "--dangerously-bypass-approvals-and-sandbox"}
		for _, setting := range []string{
			`model="` + model + `"`, `model_provider="whence"`, `model_providers.whence.name="Whence"`, `model_providers.whence.wire_api="responses"`,
			`model_providers.whence.base_url="` + url + `/v1"`, `model_providers.whence.stream_max_retries=0`,
			`analytics.enabled=false`, `check_for_update_on_startup=false`,
		} {
			args = append(args, "-c", setting)
		}
		return append(args, agentQuestion)
	},
	env: func(home, _ string) []string { return []string{"CODEX_HOME=" + home} },
	read: func(line []byte) agentEvent {
		var e struct {
			Type  string
			Error struct{ Message string }
			Item  struct {
				Type, Text string
				Output     string `json:"aggregated_output"`
			}
		}
		_ = json.Unmarshal(line, &e) // ignores lines that are not events
		switch {
		case e.Type == "item.completed" && e.Item.Type == "command_execution":
			return agentEvent{result: e.Item.Output}
		case e.Type == "item.completed" && e.Item.Type == "agent_message":
			return agentEvent{answer: e.Item.Text}
		}
		return agentEvent{failure: e.Error.Message}
	},
}

// claudeCode is Anthropic's agent, which uses the Messages API.
var claudeCode = agent{
	script: "@anthropic-ai/claude-code/cli-wrapper.cjs", tool: "Bash", call: map[string]any{"command": readWord, "description": "Reads the file"},
	args: func(string) []string {
		return []string{"-p", agentQuestion, "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash"}
	},
	env: func(_, url string) []string {
		return []string{
			"ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_API_KEY=unused", "ANTHROPIC_MODEL=" + model, "ANTHROPIC_DEFAULT_HAIKU_MODEL=" + model,
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1",
		}
	},
	read: func(line []byte) agentEvent {
		var e struct {
			Type, Result string
			Message      struct {
				Content []struct{ Type, Content string }
			}
		}
		_ = json.Unmarshal(line, &e) // ignores lines of other forms
		switch {
		case e.Type == "result":
			return agentEvent{answer: e.Result}
		case e.Type == "user" && len(e.Message.Content) == 1 && e.Message.Content[0].Type == "tool_result":
			return agentEvent{result: e.Message.Content[0].Content}
		}
		return agentEvent{}
	},
}

func TestCodexRunsATool(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	callATool(t, &codex)
}

// TestCodexRunsAToolOverAWebSocket: Codex prepares its first turn with a message that generates
// nothing, and then sends only new items. On failure it would fall back to HTTP requests.
func TestCodexRunsAToolOverAWebSocket(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	var mu sync.Mutex
	var seen upgrades
	over := codex
	over.args = func(address string) []string {
		api, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		between := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
			mu.Lock()
			defer mu.Unlock()
			seen.count(r.In)
			r.SetURL(api)
		}})
		t.Cleanup(between.Close)
		return append([]string{"-c", "model_providers.whence.supports_websockets=true"}, codex.args(between.URL)...)
	}
	callATool(t, &over)
	mu.Lock()
	defer mu.Unlock()
	if seen.sockets == 0 || seen.others > 0 {
		t.Errorf("Codex opened %d WebSockets and sent %d HTTP requests", seen.sockets, seen.others)
	}
}

func TestClaudeCodeRunsATool(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	callATool(t, &claudeCode)
}

// callATool makes an agent answer a question about a file. The model behind the worker follows a
// script: it calls a tool that reads the file, and answers with the tool's result.
func callATool(t *testing.T, a *agent) {
	t.Helper()
	dir, word := t.TempDir(), rand.Text()
	if err := os.WriteFile(filepath.Join(dir, "word.txt"), []byte(word+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := run(t, separate, agentFlags(t, scriptedServer(t, func(prompt string) string {
		switch {
		case strings.Contains(prompt, word):
			return agentAnswer + word
		case strings.Contains(prompt, agentQuestion) && strings.Contains(prompt, `"`+a.tool+`"`):
			call, _ := json.Marshal(map[string]any{"name": a.tool, "arguments": a.call}) // cannot fail: plain strings
			return "<tool_call>\n" + string(call) + "\n</tool_call>"
		default:
			return "A question about a file" // agents request titles
		}
	})))
	seen, out, err := a.run(t, dir, w.url(""))
	if err != nil || strings.TrimSpace(seen.result) != word || seen.answer != agentAnswer+word {
		t.Errorf("%v: the tool returned %q and the agent said %q; the word is %s\n%s", err, seen.result, seen.answer, word, out)
	}
	w.idle(t)
	w.allCompleted(t, 2)
}

// TestCodexReportsALateRefusal makes the model's server refuse a request after Codex has received
// the status of the answer.
func TestCodexReportsALateRefusal(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	begun := make(chan struct{})
	f := agentFlags(t, badEngine(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-begun:
		case <-r.Context().Done():
		}
		refuses(http.StatusBadRequest, "")(w, r)
	}))
	f.api = []string{"--headers-after", "1ms"}
	w := run(t, separate, f)
	api, err := url.Parse(w.url(""))
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	between := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(api) },
		FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.URL.Path == "/v1/responses" && resp.StatusCode == http.StatusOK {
				once.Do(func() { close(begun) })
			}
			return nil
		},
	})
	t.Cleanup(between.Close)
	seen, out, err := codex.run(t, t.TempDir(), between.URL)
	if err == nil || !strings.Contains(seen.failure, "no, says the engine") {
		t.Errorf("%v: Codex reports %q\n%s", err, seen.failure, out)
	}
	w.idle(t)
}

// run runs an agent in a directory and returns its parsed output and its raw output. The agent must
// reach only the service.
func (a *agent) run(t *testing.T, dir, url string) (seen agentEvent, out []byte, err error) {
	t.Helper()
	node, npm := tool(t, "node"), tool(t, "npm")
	install(t, npm, "agents")
	ctx, cancel := context.WithTimeout(t.Context(), nodePatience)
	defer cancel()
	script, err := filepath.Abs(filepath.Join("agents", "node_modules", a.script))
	if err != nil {
		t.Fatal(err)
	}
	var outside atomic.Pointer[string]
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outside.Store(new(r.Method + " " + r.Host))
		http.Error(w, "nothing outside is reachable", http.StatusForbidden)
	}))
	defer proxy.Close()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, node, append([]string{script}, a.args(url)...)...)
	cmd.Dir = dir
	cmd.Env = append(a.env(home, url), "PATH="+os.Getenv("PATH"), "HOME="+home, "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		cmd.Env = append(cmd.Env, name+"="+proxy.URL, strings.ToLower(name)+"="+proxy.URL)
	}
	var logs bytes.Buffer
	cmd.Stderr = &logs
	endsWithChildren(cmd)
	out, err = cmd.Output()
	for line := range bytes.Lines(out) {
		e := a.read(line)
		seen.result, seen.answer, seen.failure = seen.result+e.result, seen.answer+e.answer, seen.failure+e.failure
	}
	if host := outside.Load(); host != nil {
		t.Errorf("the agent connected to %s", *host)
	}
	return seen, append(out, logs.Bytes()...), err
}

// allCompleted checks that the ledger has at least n ended streams, and that all of them completed.
func (w *whence) allCompleted(t *testing.T, n int) {
	t.Helper()
	var ended struct{ Streams []struct{ ID, Reason string } }
	polltest.Eventually(t, "the streams to be over", func() bool {
		r := w.get(t, "/v1/streams?state=ended")
		if err := json.Unmarshal(r.body, &ended); err != nil {
			t.Fatalf("%s: %v", r.body, err)
		}
		return len(ended.Streams) >= n
	})
	for _, s := range ended.Streams {
		if s.Reason != "completed" {
			t.Errorf("stream %s ended with %s", s.ID, s.Reason)
		}
	}
}

// agentTemplate is a chat template whose prompts contain everything that an agent sends, in the
// Hermes format.
const agentTemplate = `{% for tool in tools or [] %}{{ tool | tojson }}
{% endfor %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}{% for call in message.tool_calls or [] %}<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// scriptedServer starts a server like vLLM, whose model answers a prompt with the result of say.
func scriptedServer(t *testing.T, say func(prompt string) string) (url string) {
	t.Helper()
	tok := tinyTokenizer(t)
	return completionServer(t, resumable, func(w http.ResponseWriter, r *http.Request) {
		var asked completionBody
		var ids []uint32
		err := json.NewDecoder(r.Body).Decode(&asked)
		if err == nil {
			err = json.Unmarshal(asked.Prompt, &ids)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p := &provider{variant: resumable, tok: tok, answer: tok.Encode(say(tok.Decode(ids, false)), false)}
		c := &providerCall{ResponseWriter: w, request: r, provider: p}
		if asked.MaxTokens == 1 { // the worker's trial request
			c.limit = 1
		}
		c.say()
	}).URL
}

// agentFlags returns the flags for a model behind a server, whose context is long enough for
// agents.
func agentFlags(t *testing.T, upstream string) flags {
	t.Helper()
	dir := wideModel(t, 1<<18)
	file := filepath.Join(dir, "tokenizer_config.json")
	var config map[string]any
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err == nil {
		config["chat_template"] = agentTemplate
		b, err = json.Marshal(config)
	}
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	served := []string{"--model", dir, "--model-name", model}
	return flags{chat: served, worker: append([]string{"--engine", "openai", "--upstream", upstream}, served...)}
}

// wideModel returns a directory with the embedded model with a context of contextLength tokens.
func wideModel(t *testing.T, contextLength int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, whencetiny.FS()); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	wide := bytes.Replace(b, []byte(`"max_position_embeddings": 1024`), fmt.Appendf(nil, `"max_position_embeddings": %d`, contextLength), 1)
	if bytes.Equal(wide, b) {
		t.Fatalf("%s", b)
	}
	if err := os.WriteFile(config, wide, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
