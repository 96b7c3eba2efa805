package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/internal/whencetiny"
)

// An agent is a program that lets a model call tools. It is installed from npm, and only the
// address of its service is changed.
type agent struct {
	script string // starts the agent, in Node or by itself; a path in node_modules of the directory habits/agents
	tool   string // called by the model
	call   func(command string) map[string]any
	args   func(url string) []string
	// resumed has the further arguments before a question that goes on with the conversation before.
	resumed []string
	compact string // a question that makes the agent replace the conversation with a summary, if there is one
	env     func(home, url string) []string
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
	agentQuestion = "Which word is in the file word5.txt?"
	agentAnswer   = "The word in the file is "
	agentAgain    = "Which word was it again?"
	agentTurns    = 5 // calls of a tool before the answer
	agentSummary  = "The user asked for a word five times."
	agentLast     = "It was in the summary"
)

// codex is OpenAI's agent, which uses the Responses API.
var codex = agent{
	script: "@openai/codex/bin/codex.js", tool: "exec_command", resumed: []string{"resume", "--last"},
	call: func(command string) map[string]any { return map[string]any{"cmd": command} },
	args: func(url string) []string {
		args := []string{"exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"}
		for _, setting := range []string{
			`model="` + model + `"`, `model_provider="whence"`, `model_providers.whence.name="Whence"`, `model_providers.whence.wire_api="responses"`,
			`model_providers.whence.base_url="` + url + `/v1"`,
		} {
			args = append(args, "-c", setting)
		}
		return args
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
	script: "@anthropic-ai/claude-code/cli-wrapper.cjs", tool: "Bash", resumed: []string{"-c"}, compact: "/compact",
	call: func(command string) map[string]any {
		return map[string]any{"command": command, "description": "Reads the file"}
	},
	args: func(string) []string {
		return []string{"--output-format", "stream-json", "--verbose", "--allowedTools=Bash", "-p"}
	},
	env: func(_, url string) []string {
		return []string{
			"ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_API_KEY=unused", "ANTHROPIC_MODEL=" + model, "ANTHROPIC_DEFAULT_HAIKU_MODEL=" + model,
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

// opencode is an agent for any model, which uses chat completions.
var opencode = agent{
	script: "opencode-linux-x64/bin/opencode", tool: "bash", resumed: []string{"-c"},
	call: func(command string) map[string]any {
		return map[string]any{"command": command, "description": "Reads the file"}
	},
	args: func(string) []string { return []string{"run", "--format", "json"} },
	env: func(_, url string) []string {
		return []string{`OPENCODE_CONFIG_CONTENT={"model":"whence/` + model + `","provider":{"whence":{"npm":"@ai-sdk/openai-compatible",` +
			`"options":{"baseURL":"` + url + `/v1","apiKey":"unused"},"models":{"` + model + `":{"limit":{"context":262144,"output":32000}}}}}}`}
	},
	read: func(line []byte) agentEvent {
		var e struct {
			Type string
			Part struct {
				Text  string
				State struct{ Output string }
			}
			Error struct{ Data struct{ Message string } }
		}
		_ = json.Unmarshal(line, &e) // ignores lines of other forms
		switch e.Type {
		case "tool_use":
			return agentEvent{result: e.Part.State.Output}
		case "text":
			return agentEvent{answer: e.Part.Text}
		}
		return agentEvent{failure: e.Error.Data.Message}
	},
}

func TestOpencodeRunsATool(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	callATool(t, &opencode)
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

// callATool makes an agent answer a question about a file, and then another one in the same conversation.
// The model behind the worker follows a script: it calls a tool that reads a file, until it has read all
// files, and answers with the last one's word. The agent has its default settings, except for the address
// of the service: nothing that it sends is refused, and it sends nothing twice.
func callATool(t *testing.T, a *agent) {
	t.Helper()
	dir := t.TempDir()
	words := make([]string, agentTurns)
	for i := range words {
		words[i] = rand.Text()
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("word%d.txt", i+1)), []byte(words[i]+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	word := words[agentTurns-1]
	w := run(t, separate, agentFlags(t, scriptedServer(t, func(prompt string) string {
		read := 0
		for read < agentTurns && strings.Contains(prompt, words[read]) {
			read++
		}
		switch {
		case strings.Contains(prompt, agentSummary):
			return agentLast
		case a.compact != "" && strings.Contains(prompt, "<summary>"): // of what the agent asks for
			return "<summary>" + agentSummary + "</summary>"
		case !strings.Contains(prompt, agentQuestion) || !strings.Contains(prompt, `"`+a.tool+`"`):
			return "A question about a file" // agents request titles
		case strings.Contains(prompt, agentAgain):
			return "Again, it is " + word
		case read == agentTurns:
			return agentAnswer + word
		}
		call, _ := json.Marshal(map[string]any{"name": a.tool, "arguments": a.call(fmt.Sprintf("cat word%d.txt", read+1))}) // cannot fail: plain strings
		return "<tool_call>\n" + string(call) + "\n</tool_call>"
	})))
	home, url := t.TempDir(), onceEach(t, w.url(""))
	seen, out, err := a.run(t, dir, home, url, agentQuestion)
	if err != nil || strings.Join(strings.Fields(seen.result), "") != strings.Join(words, "") || seen.answer != agentAnswer+word {
		t.Errorf("%v: the tool returned %q and the agent said %q; the words are %q\n%s", err, seen.result, seen.answer, words, out)
	}
	seen, out, err = a.run(t, dir, home, url, append(slices.Clone(a.resumed), agentAgain)...)
	if err != nil || seen.result != "" || seen.answer != "Again, it is "+word {
		t.Errorf("%v: asked again, the agent said %q after the results %q; the word is %s\n%s", err, seen.answer, seen.result, word, out)
	}
	if a.compact != "" {
		if _, out, err := a.run(t, dir, home, url, append(slices.Clone(a.resumed), a.compact)...); err != nil {
			t.Errorf("%v: the conversation cannot be compacted\n%s", err, out)
		}
		seen, out, err = a.run(t, dir, home, url, append(slices.Clone(a.resumed), agentAgain)...)
		if err != nil || seen.answer != agentLast {
			t.Errorf("%v: asked after the summary, the agent said %q\n%s", err, seen.answer, out)
		}
	}
	w.idle(t)
	w.allCompleted(t, agentTurns+2)
}

// ofAPI matches the paths of requests for answers, and of others of OpenAI's and Anthropic's APIs. Claude Code
// also tries /api/hello.
var ofAPI = regexp.MustCompile("^/(v1/|api/(chat|generate|embed)$)")

// onceEach starts a proxy in front of the service, and returns its URL. No request for an answer may be
// refused, or come twice.
func onceEach(t *testing.T, service string) string {
	t.Helper()
	to, err := url.Parse(service)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen, fields := map[string]bool{}, map[string]bool{}
	t.Cleanup(func() { keepFields(t, fields) })
	forward := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, ModifyResponse: func(r *http.Response) error {
		if ofAPI.MatchString(r.Request.URL.Path) && r.StatusCode >= http.StatusBadRequest {
			t.Errorf("%s %s has the status %s", r.Request.Method, r.Request.URL, r.Status)
		}
		return nil
	}}
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the agent has left
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if ofAPI.MatchString(r.URL.Path) && len(body) > 0 {
			mu.Lock()
			if seen[string(body)] {
				t.Errorf("%s %s comes twice: %.200s", r.Method, r.URL, body)
			}
			seen[string(body)] = true
			noteFields(fields, r.Method+" "+r.URL.Path, body)
			mu.Unlock()
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	return between.URL
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
	seen, out, err := codex.run(t, t.TempDir(), t.TempDir(), between.URL, "-c", "model_providers.whence.stream_max_retries=0", agentQuestion)
	if err == nil || !strings.Contains(seen.failure, "no, says the engine") {
		t.Errorf("%v: Codex reports %q\n%s", err, seen.failure, out)
	}
	w.idle(t)
}

// run runs an agent in a directory and returns its parsed output and its raw output. The agent reaches
// only the service: it is told that everything else is forbidden.
func (a *agent) run(t *testing.T, dir, home, url string, question ...string) (seen agentEvent, out []byte, err error) {
	t.Helper()
	node, npm := tool(t, "node"), tool(t, "npm")
	install(t, npm, "habits/agents")
	ctx, cancel := context.WithTimeout(t.Context(), nodePatience)
	defer cancel()
	script, err := filepath.Abs(filepath.Join("habits", "agents", "node_modules", a.script))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "nothing outside is reachable", http.StatusForbidden)
	}))
	defer proxy.Close()
	if _, err := os.Stat(script); err != nil {
		missing(t, "the agent is not installed: %v", err)
	}
	cmd := exec.CommandContext(ctx, script, slices.Concat(a.args(url), question)...)
	if strings.HasSuffix(script, "js") {
		cmd = exec.CommandContext(ctx, node, slices.Concat([]string{script}, a.args(url), question)...)
	}
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

// agentFlags returns the flags for a model behind a server, whose context is long enough for
// agents.
func agentFlags(t *testing.T, upstream string) flags {
	t.Helper()
	dir := wideModel(t, 1<<18)
	edit(t, filepath.Join(dir, "tokenizer_config.json"), map[string]any{"chat_template": agentTemplate})
	return servedBy(dir, upstream)
}

// servedBy returns the flags for the model of a directory behind a server like vLLM.
func servedBy(dir, upstream string) flags {
	served := []string{"--model", dir, "--model-name", model}
	return flags{chat: served, worker: append([]string{"--engine", "openai", "--upstream", upstream}, served...)}
}

// edit sets members of a JSON file.
func edit(t *testing.T, file string, members map[string]any) {
	t.Helper()
	var config map[string]any
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err == nil {
		maps.Copy(config, members)
		b, err = json.Marshal(config)
	}
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
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
