package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"

	streamstory "github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
)

// A chatServer is a server of no known make that renders conversations and parses answers itself. What the
// last message says decides how it answers.
type chatServer struct {
	url   string
	asked atomic.Int32 // requests other than trials
	left  atomic.Int32 // requests whose client has left
}

func newChatServer(t *testing.T) *chatServer {
	t.Helper()
	s := &chatServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"org/big","object":"model","owned_by":"somebody"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", s.answer)
	mux.HandleFunc("POST /v1/embeddings", func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Input []string }
		_ = json.NewDecoder(r.Body).Decode(&asked)
		fmt.Fprintf(w, `{"data":[{"index":0,"embedding":[3,%d]}],"usage":{"prompt_tokens":2}}`, len(asked.Input[0]))
	})
	mux.HandleFunc("POST /v1/rerank", func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Documents []string }
		_ = json.NewDecoder(r.Body).Decode(&asked)
		results := make([]map[string]any, len(asked.Documents))
		for i, d := range asked.Documents {
			results[i] = map[string]any{"index": i, "relevance_score": len(d)}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"results": results, "usage": map[string]any{"total_tokens": 9}})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// textOn returns the flags of a worker without files of the model.
func textOn(url string) []string {
	return []string{"--engine", "openai", "--upstream", url, "--model", "none", "--model-name", model}
}

func (s *chatServer) answer(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Messages  []struct{ Content string }
		Tools     []any
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	says := asked.Messages[len(asked.Messages)-1].Content
	if says == "too long" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"That is too long.","type":"invalid_request_error","code":"context_length_exceeded"}}`)
		return
	}
	n := int32(0)
	if asked.MaxTokens != 1 {
		n = s.asked.Add(1)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(deltas ...string) {
		for _, delta := range deltas {
			fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":%s,"finish_reason":null}]}`+"\n\n", delta)
		}
		w.(http.Flusher).Flush()
	}
	end := func(finish string) {
		fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":{},"finish_reason":%q}]}`+"\n\n"+`data: {"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":21,"total_tokens":32}}`+"\n\ndata: [DONE]\n\n", finish)
	}
	switch {
	case len(asked.Tools) > 0:
		send(`{"role":"assistant","content":null}`, `{"reasoning_content":"They want "}`, `{"reasoning_content":"weather."}`,
			`{"tool_calls":[{"index":0,"id":"call_7","type":"function","function":{"name":"get_weather","arguments":""}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":\"Paris\","}}]}`, `{"tool_calls":[{"index":0,"function":{"arguments":"\"unit\":\"C\"}"}}]}`)
		end("tool_calls")
	case says == "break off":
		send(`{"content":"Hello"}`)
	case says == "break off once" && n == 1: // before the first token
	case says == "go on":
		send(`{"content":"Hello"}`)
		<-r.Context().Done()
		s.left.Add(1)
	default:
		send(`{"role":"assistant","content":""}`, `{"content":"Hello, "}`, `{"content":"wörld"}`, `{"content":"! <tool_call>{}"}`)
		end("stop")
	}
}

// TestTextOnlyAnswersEveryAPI: without files of the model, over every API of clients.
func TestTextOnlyAnswersEveryAPI(t *testing.T) {
	t.Parallel()
	const want = "Hello, wörld! <tool_call>{}"
	server := newChatServer(t)
	w := run(t, allInOne, flags{worker: textOn(server.url)})
	c := w.sdk()
	if got := same(t, &c, asked("hello", 0)); got.Message.Content != want || got.FinishReason != "stop" {
		t.Errorf("%+v", got)
	}
	if u := whole(t, &c, asked("hello", 0)).Usage; u.PromptTokens != 11 || u.CompletionTokens != 21 || strings.Contains(u.RawJSON(), "estimated") {
		t.Error(u.RawJSON())
	}
	p := asked("What is the weather in Paris?", 0)
	p.Tools = []openai.ChatCompletionToolUnionParam{weatherTool}
	got := same(t, &c, p)
	if calls := got.Message.ToolCalls; got.FinishReason != "tool_calls" || len(calls) != 1 || calls[0].ID != "call_7" || calls[0].Function.Arguments != `{"city":"Paris","unit":"C"}` {
		t.Errorf("%+v", got)
	}
	if r := sameResponse(t, &c, responded("hello")); r.OutputText() != want || r.Usage.InputTokens != 11 || r.Usage.OutputTokens != 21 {
		t.Error(r.RawJSON())
	}
	messages := ask{"model": model, "max_tokens": 99, "stop_sequences": []string{"wör"}, "messages": []any{map[string]any{"role": "user", "content": "hello"}}}
	var m struct {
		Content []struct{ Text string }
		Stop    string         `json:"stop_sequence"`
		Usage   map[string]any `json:"usage"`
	}
	r := w.postTo(t, "/v1/messages", messages)
	if err := json.Unmarshal(r.body, &m); err != nil || len(m.Content) != 1 || m.Content[0].Text != "Hello, " || m.Stop != "wör" || m.Usage["estimated"] != true {
		t.Errorf("%v: %s", err, r.body)
	}
	if r := w.postTo(t, "/api/chat", ask{"model": model, "stream": false, "messages": messages["messages"]}); !strings.Contains(string(r.body), `"eval_count":21`) {
		t.Errorf("%s", r.body)
	}
	if r := w.postTo(t, "/v1/embeddings", ask{"model": model, "input": "four"}); !strings.Contains(string(r.body), `"embedding":[0.6,0.8]`) {
		t.Errorf("%s", r.body)
	}
	r = w.postTo(t, "/v1/rerank", ask{"model": model, "query": "q", "documents": []string{"a", "the longest", "long"}, "top_n": 2})
	if id := r.header.Get(idName); !strings.Contains(string(r.body), `"usage":{"prompt_tokens":9,"total_tokens":9},"results":[{"index":1,"document":{"text":"the longest"},"relevance_score":11},{"index":2,`) ||
		len(w.why(t, id).Hops) != 3 {
		t.Errorf("%s: %+v", r.body, w.why(t, id))
	}
	if r := w.get(t, "/v1/models/"+model); !strings.Contains(string(r.body), `"embeddings":true,"scores":true`) {
		t.Errorf("%s", r.body)
	}
	if r := w.post(t, greedy("too long")); r.status != http.StatusBadRequest || r.completion(t).Error.code() != "context_length_exceeded" {
		t.Errorf("%s", r.body)
	}
	for path, body := range map[string]ask{
		"/v1/chat/completions": greedy("hello", "return_token_ids", true), "/v1/embeddings": {"model": model, "input": []int{1}}, "/tokenize": {"model": model, "prompt": "x"},
		"/v1/messages/count_tokens": {"model": model, "messages": messages["messages"]},
	} {
		if r := w.postTo(t, path, body); r.status != http.StatusBadRequest || !strings.Contains(string(r.body), "no files of the model") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	w.idle(t)
}

// TestTextOnlyStreamsHaveTheirEndings: a stream is retried before its first token, and never after it, and
// a stop of a server of no known make is only asked for.
func TestTextOnlyStreamsHaveTheirEndings(t *testing.T) {
	t.Parallel()
	server := newChatServer(t)
	var workers []*process
	for i := range 2 {
		workers = append(workers, service(t, llmWorker, "127.0.0.1:0", []string{"--name", workerName(i)}, textOn(server.url)))
	}
	w := &fleet{above(t, "", "--worker", workers[0].listening(t)+","+workers[1].listening(t), "--model", "none", "--model-name", model), workers}
	w.processes[llmWorker], w.worker = workers[0], workers[0].listening(t)
	for i := range 2 {
		w.healthy(t, workerName(i))
	}
	w.connected(t)
	if got := w.answer(t, greedy("break off once")); !strings.HasPrefix(got, "Hello, w") {
		t.Errorf("%q", got)
	}
	if n := server.asked.Load(); n != 2 {
		t.Errorf("the server was asked %d times", n)
	}
	l := w.open(t, greedy("break off")).begun(t)
	if end := l.failed(t); end.Reason != "peer_lost" || end.Path[0] != "engine" {
		t.Errorf("%+v", end)
	}
	l = w.open(t, greedy("go on")).begun(t)
	l.close()
	polltest.Eventually(t, "the server sees that its client has left", func() bool { return server.left.Load() == 1 })
	var story streamstory.Story
	polltest.Eventually(t, "every hop has ended the stream", func() bool {
		story = w.why(t, l.id)
		return len(story.Hops) == 3 && !slices.ContainsFunc(story.Hops, func(h streamstory.Hop) bool { return h.State != "ended" })
	})
	if last := story.Hops[len(story.Hops)-1]; story.Reason != "client_gone" || last.StopConfirmedMS != nil || last.StopHeardMS == nil {
		t.Errorf("%+v", story)
	}
}

// TestTextOnlyOnLlamaCPP compares answers with the server's own. The build of npm has no chats.
func TestTextOnlyOnLlamaCPP(t *testing.T) {
	tier.Full(t)
	if os.Getenv("WHENCE_LLAMACPP") == "" {
		t.Skip("scripts/llamacpp plays it")
	}
	t.Parallel()
	_, url := llamaServer(t, "native", 4*1024)
	w := run(t, allInOne, flags{worker: textOn(url)})
	c := w.sdk()
	p := asked(long, 0)
	p.MaxTokens = param.NewOpt(int64(60))
	got := same(t, &c, p)
	direct := openai.NewClient(option.WithBaseURL(url+"/v1/"), option.WithAPIKey("unused"), option.WithMaxRetries(0))
	want := whole(t, &direct, p)
	if got.Message.Content != want.Choices[0].Message.Content || got.FinishReason != want.Choices[0].FinishReason {
		t.Errorf("got  %+v\nwant %+v", got, want.Choices[0])
	}
	if u := whole(t, &c, p).Usage; u.PromptTokens != want.Usage.PromptTokens || u.CompletionTokens != want.Usage.CompletionTokens {
		t.Errorf("%s, of the server %s", u.RawJSON(), want.Usage.RawJSON())
	}
	w.idle(t)
}
