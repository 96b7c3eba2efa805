package ollama_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/api-service/call/calltest"
	"github.com/whence-dev/whence/api-service/edge/sse"
	"github.com/whence-dev/whence/api-service/ollama"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// answered returns the lines of an answer, whose items come one second after another.
func answered(t *testing.T, api, body string, items ...*chatv1.GenerateResponse) string {
	t.Helper()
	c := parsers[api].Parse(t, body)
	lines := sse.Encoder{Identity: true, Lines: true}
	write, gather := c.Events(), c.Whole()
	var all []byte
	for _, out := range items {
		time.Sleep(time.Second)
		if c.Stream {
			write(out, &lines)
		} else if whole := gather(out); whole != nil {
			all = append(all, whole...)
		}
	}
	encoded, _ := lines.Take()
	all = append(all, encoded...)
	for line := range strings.Lines(string(all)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%q is not JSON", line)
		}
	}
	return string(all)
}

const (
	chatBody     = `{"model":"m:latest","messages":[{"role":"user","content":"x"}]}`
	generateBody = `{"model":"m","prompt":"x"}`
)

// at returns the beginning of a chat's line that is sent second seconds after the request.
func at(second string) string {
	return `{"model":"m:latest","created_at":"2000-01-01T00:00:0` + second + `Z","message":{"role":"assistant","content":`
}

const (
	more   = `,"done":false}` + "\n"
	times  = `,"total_duration":4000000000,"load_duration":1000000000,"prompt_eval_count":3,"prompt_eval_duration":1000000000,"eval_count":5,"eval_duration":2000000000}`
	atOnce = `,"total_duration":4000000000,"load_duration":0,"prompt_eval_count":3,"prompt_eval_duration":0,"eval_count":5,"eval_duration":4000000000}`
)

func delta(d *chatv1.Delta) *chatv1.GenerateResponse { return calltest.Delta(d) }

func end(finish llmv1.Finish) *chatv1.GenerateResponse {
	return calltest.End(&llmv1.End{Finish: finish, Usage: &llmv1.Usage{PromptTokens: 3, CompletionTokens: 5}})
}

func TestAnswersAreLinesOrOneBody(t *testing.T) {
	started := calltest.Started(&llmv1.Started{StreamId: "s", Model: "m"})
	hello := []*chatv1.GenerateResponse{started, delta(&chatv1.Delta{Reasoning: "h\n"}), delta(&chatv1.Delta{Text: `<a "b">`}), end(llmv1.Finish_FINISH_LENGTH)}
	calls := []*chatv1.GenerateResponse{
		started,
		delta(&chatv1.Delta{Text: "I call.", ToolCalls: []*chatv1.ToolCallDelta{{Id: "c1", Name: "f", Arguments: "{\n\"a\":"}}}),
		delta(&chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Arguments: " 1}"}, {Index: 1, Id: "c2", Name: "g", Arguments: `{"cut`}}}),
		end(llmv1.Finish_FINISH_TOOL_CALLS),
	}
	const (
		first   = `{"id":"c1","function":{"index":0,"name":"f","arguments":{"a":1}}}`
		second  = `{"id":"c2","function":{"index":1,"name":"g","arguments":{"INVALID_JSON":"{\"cut"}}}`
		likely  = `[{"token":"x","logprob":-1,"bytes":[120],"top_logprobs":[{"token":"y","logprob":-0.5}]}]`
		generic = `{"model":"m","created_at":"2000-01-01T00:00:0`
	)
	for _, c := range []struct {
		api, body string
		items     []*chatv1.GenerateResponse
		want      string
	}{
		{"chat", chatBody, hello, at("2") + `"","thinking":"h\n"}` + more + at("3") + `"<a \"b\">"}` + more + at("4") + `""},"done":true,"done_reason":"length"` + times + "\n"},
		{"chat", strings.Replace(chatBody, "{", `{"stream":false,`, 1), hello, at("4") + `"<a \"b\">","thinking":"h\n"},"done":true,"done_reason":"length"` + atOnce},
		{"chat", chatBody, calls, at("2") + `"I call."}` + more + at("3") + `"","tool_calls":[` + first + `]}` + more + at("4") + `"","tool_calls":[` + second + `]}` + more +
			at("4") + `""},"done":true,"done_reason":"stop"` + times + "\n"},
		{"chat", strings.Replace(chatBody, "{", `{"stream":false,`, 1), calls, at("4") + `"I call.","tool_calls":[` + first + `,` + second + `]},"done":true,"done_reason":"stop"` + atOnce},
		{"generate", generateBody, hello, generic + `2Z","response":"","thinking":"h\n"` + more + generic + `3Z","response":"<a \"b\">"` + more +
			generic + `4Z","response":"","done":true,"done_reason":"length"` + times + "\n"},
		{"generate", strings.Replace(generateBody, "{", `{"stream":false,"logprobs":true,"top_logprobs":1,`, 1), []*chatv1.GenerateResponse{
			started, delta(&chatv1.Delta{Text: "x", Logprobs: []*chatv1.TokenLogprob{{Token: "x", Logprob: -1, Bytes: []byte("x"), Top: []*chatv1.TokenLogprob{{Token: "y", Logprob: -0.5}}}}}),
			delta(&chatv1.Delta{}), end(llmv1.Finish_FINISH_CONTENT_FILTER),
		}, generic + `4Z","response":"x","logprobs":` + likely + `,"done":true,"done_reason":"content_filter"` + atOnce},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := answered(t, c.api, c.body, c.items...); got != c.want {
				t.Errorf("%s:\n%s\nwant\n%s", c.body, got, c.want)
			}
		})
	}
}

func TestWithoutAPromptAModelIsLoadedOrUnloaded(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"m"}`:                                    `"done_reason":"load"}`,
		`{"model":"m","keep_alive":"10m"}`:                 `"done_reason":"load"}`,
		`{"model":"m","keep_alive":0,"messages":[]}`:       `"done_reason":"unload"}`,
		`{"model":"m","keep_alive":"0s","prompt":""}`:      `"done_reason":"unload"}`,
		`{"model":"m","keep_alive":-1,"prompt":"","x":""}`: `"done_reason":"load"}`,
	} {
		for api, parse := range parsers {
			c := parse.Parse(t, body)
			if c.Loaded == nil {
				t.Errorf("%s: %s makes a stream", api, body)
			} else if got := string(c.Loaded()); !json.Valid([]byte(got)) || !strings.HasSuffix(got, `,"done":true,`+want) || strings.Contains(got, "message") != (api == "chat") {
				t.Errorf("%s: %s: %s", api, body, got)
			}
		}
	}
}

func TestVectorsHaveTheFormOfTheirRoute(t *testing.T) {
	resp := &chatv1.EmbeddingsResponse{Embeddings: []*llmv1.Embedding{{Values: []float32{0.5, 1}}, {Values: []float32{2}}}, End: &llmv1.End{Usage: &llmv1.Usage{PromptTokens: 3}}}
	synctest.Test(t, func(t *testing.T) {
		e, err := ollama.ParseEmbed([]byte(`{"model":"m:latest","input":["a","b"]}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		const want = `{"model":"m:latest","embeddings":[[0.5,1],[2]],"total_duration":1000000000,"load_duration":0,"prompt_eval_count":3}`
		if got := string(e.Answer(resp)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	e, err := ollama.ParseEmbeddings([]byte(`{"model":"m","prompt":"a"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(e.Answer(resp)); got != `{"embedding":[0.5,1]}` {
		t.Error(got)
	}
}

func TestErrorsHaveTheEndingBeside(t *testing.T) {
	e := &streamerr.Error{Reason: streamerr.NotFound, Path: streamerr.NewPath("chat-service"), Message: `the model "x" does not exist`, Param: "model", Code: streamerr.CodeModelNotFound}
	const want = `{"error":"model \"x\" not found","whence":{"reason":"not_found","origin":"chat-service","path":["chat-service"],"param":"model","code":"model_not_found"}}`
	if status, body := ollama.Form.Refusal(404, e, "s"); status != 404 || string(body) != want {
		t.Errorf("%d %s", status, body)
	}
	lines := sse.Encoder{Identity: true, Lines: true}
	ollama.Form.Failure(e, "s", &lines)
	if got, _ := lines.Take(); string(got) != want+"\n" {
		t.Errorf("%s", got)
	}
}

func TestModelsAreListedWithTags(t *testing.T) {
	models := []*chatv1.Model{
		{Id: "org:1/m", Created: 1, ContextLength: 9, HealthyWorkers: 1, Images: true, Embeds: true, Parent: "base"}, {Id: "m:1b", Created: 1},
	}
	const (
		details = `,"details":{"parent_model":"","format":"","family":"whence","families":["whence"],"parameter_size":"","quantization_level":""}`
	)
	if got := string(ollama.Tags(models)); !strings.HasPrefix(got, `{"models":[{"name":"org:1/m:latest","model":"org:1/m:latest","modified_at":"1970-01-01T00:00:01Z","size":0,"digest":"`) ||
		!strings.Contains(got, `{"name":"m:1b","model":"m:1b",`) || !strings.HasSuffix(got, details+`}]}`) {
		t.Error(got)
	}
	if got := string(ollama.Running(models)); strings.Contains(got, "m:1b") || !strings.HasSuffix(got, `,"expires_at":"2070-01-01T00:00:01Z","size_vram":0,"context_length":9}]}`) {
		t.Error(got)
	}
	if got := string(ollama.Running(nil)); got != `{"models":[]}` {
		t.Error(got)
	}
	if got := string(ollama.Show(models[0])); !strings.Contains(got, `"model_info":{"general.architecture":"whence","general.basename":"org:1/m","whence.context_length":9},"capabilities":["completion","tools","vision","embedding"]`) ||
		!strings.Contains(got, `"parent_model":"base"`) {
		t.Error(got)
	}
	if got := string(ollama.Version("v1")); got != `{"version":"0.12.11","whence":"v1"}` {
		t.Error(got)
	}
	for body, want := range map[string]string{`{"model":"m:latest","verbose":true}`: "m", `{"name":"m:1b"}`: "m:1b", `{}`: "", `{"model":1}`: "", `[]`: ""} {
		if n, err := ollama.ParseModelName([]byte(body), nil); n.Model != want || (err == nil) != (want != "") {
			t.Errorf("%s: %+v, %v", body, n, err)
		}
	}
}
