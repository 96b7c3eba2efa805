package ollama_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/call/calltest"
	"github.com/whence-dev/whence/api-service/ollama"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var parsers = map[string]calltest.Parser{"chat": ollama.ParseChat, "generate": ollama.ParseGenerate}

// TestBodiesBecomeRequests has bodies as Ollama's clients send them.
func TestBodiesBecomeRequests(t *testing.T) {
	const user, hi = `{"role":"user","content":"hi"}`, `"messages":[{"role":"user","content":"hi"}]`
	for _, c := range []struct{ api, body, want, left string }{
		{"chat", hi + `,"stream":false`, hi, ""},
		{"chat", hi + `,"format":null,"options":null,"keep_alive":null,"tools":null,"think":null,"images":null`, hi, ""},
		{"chat", hi + `,"format":"","options":{},"tools":[]`, hi, ""},
		{"chat", hi + `,"keep_alive":"5m","truncate":true,"shift":true,"novelty":1`, hi, "keep_alive, novelty, shift, truncate"},
		{"chat", hi + `,"keep_alive":0`, hi, "keep_alive"},
		{"chat", hi + `,"options":{"num_predict":-1,"temperature":0.5,"top_k":40.0,"top_p":0.25,"min_p":0.125,"seed":7,"stop":["a",""],"repeat_penalty":1.5,"presence_penalty":0.5,"frequency_penalty":1,
			"num_ctx":4096,"num_gpu":1,"repeat_last_n":64,"mirostat":0,"typical_p":1,"novelty":1}`,
			hi + `,"stop":["a"],"sampling":{"temperature":0.5,"topK":40,"topP":0.25,"minP":0.125,"seed":"7","repetitionPenalty":1.5,"presencePenalty":0.5,"frequencyPenalty":1}`,
			"options.novelty, options.num_ctx, options.num_gpu, options.repeat_last_n, options.typical_p"},
		{"chat", hi + `,"options":{"num_predict":9,"seed":-1,"stop":"x","top_k":-1,"repeat_penalty":0}`, hi + `,"stop":["x"],"sampling":{"maxTokens":9,"topK":0}`, ""},
		{"chat", hi + `,"options":{"num_predict":-2,"num_predict":-2}`, "", "refused: options.num_predict"},
		{"chat", hi + `,"format":"json"`, hi + `,"sampling":{"guide":{"forms":[{"schema":"{\"type\":\"object\"}"}]}}`, ""},
		{"chat", hi + `,"format":{"type": "array"}`, hi + `,"sampling":{"guide":{"forms":[{"schema":"{\"type\":\"array\"}"}]}}`, ""},
		{"chat", hi + `,"think":false`, hi + `,"templateVariables":"{\"enable_thinking\":false}"`, ""},
		{"chat", hi + `,"think":"high"`, hi + `,"templateVariables":"{\"enable_thinking\":true,\"reasoning_effort\":\"high\"}"`, ""},
		{"chat", hi + `,"think":"none"`, hi + `,"templateVariables":"{\"enable_thinking\":false,\"reasoning_effort\":\"none\"}"`, ""},
		{"chat", hi + `,"think":"hard"`, hi, "think"},
		{"chat", hi + `,"logprobs":true,"top_logprobs":2`, hi + `,"sampling":{"logprobs":2}`, ""},
		{"chat", hi + `,"top_logprobs":2`, hi, "top_logprobs"},
		{"chat", hi + `,"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type": "object"}}}]`,
			hi + `,"tools":[{"name":"f","description":"d","parameters":"{\"type\":\"object\"}"}]`, ""},
		{"chat", `"messages":[` + user + `,{"role":"assistant","content":"","thinking":"hm","tool_calls":[{"function":{"name":"f","arguments":{"a": 1}}},{"function":{"index":1,"name":"g","arguments":{}}}]},
			{"role":"tool","content":"2","tool_name":"g"},{"role":"tool","content":"1","tool_name":"f"}]`,
			`"messages":[` + user + `,{"role":"assistant","reasoning":"hm","toolCalls":[{"id":"call_1_0","name":"f","arguments":"{\"a\": 1}"},{"id":"call_1_1","name":"g","arguments":"{}"}]},
			{"role":"tool","content":"2","name":"g","toolCallId":"call_1_1"},{"role":"tool","content":"1","name":"f","toolCallId":"call_1_0"}]`, ""},
		{"chat", `"messages":[` + user + `,{"role":"assistant","content":"It is"}]`, `"continueMessage":true,"messages":[` + user + `,{"role":"assistant","content":"It is"}]`, ""},
		{"chat", `"messages":[{"role":"user","content":"hi","images":["QQ==","data:image/png;base64,QQ=="]}]`, `"messages":[{"role":"user","content":"hi","images":[{"image":{}},{"image":{}}]}]`, ""},
		{"chat", `"messages":[{"role":"system","content":"s","images":["QQ=="],"tool_name":"f"},` + user + `]`, `"messages":[{"role":"system","content":"s"},` + user + `]`, "messages[].images, messages[].tool_name"},
		{"generate", `"prompt":"hi"`, hi, ""},
		{"generate", `"prompt":"hi","system":"s","template":"","suffix":"","context":[1,2],"raw":false,"images":[]`, `"messages":[{"role":"system","content":"s"},` + user + `]`, "context"},
		{"generate", `"prompt":"hi","images":["QQ=="]`, `"messages":[{"role":"user","content":"hi","images":[{"image":{}}]}]`, ""},
		{"generate", `"prompt":"hi","raw":true,"think":true,"images":["QQ=="]`, `"prompts":[{"text":"hi","images":[{}]}]`, ""},
		{"chat", hi + `,"format":"xml"`, "", "refused: format"},
		{"chat", hi + `,"options":{"temperature":"hot"}`, "", "refused: options.temperature"},
		{"chat", hi + `,"options":{"num_predict":1.5}`, "", "refused: options.num_predict"},
		{"chat", hi + `,"think":1`, "", "refused: think"},
		{"chat", `"messages":[{"role":"user","images":["QQ==",1],"content":""}]`, "", "refused: messages[0].images[1]"},
		{"chat", `"messages":[{"role":"tool","tool_name":1,"content":""}]`, "", "refused: messages[0].tool_name"},
		{"generate", `"prompt":"hi","images":5`, "", "refused: images"},
		{"generate", `"prompt":"hi","suffix":"x"`, "", "refused: suffix"},
		{"generate", `"prompt":"hi","template":"x"`, "", "refused: template"},
		{"generate", `"prompt":"hi","raw":true,"system":"s"`, "", "refused: system"},
		{"chat", hi + `,"model":""`, "", "refused: model"},
	} {
		in := &strict.Reading{}
		body := `{"model":"m:latest",` + c.body + `}`
		if strings.Contains(c.body, `"model"`) {
			body = "{" + c.body + "}"
		}
		got, err := parsers[c.api]([]byte(body), in)
		if param, refused := strings.CutPrefix(c.left, "refused: "); refused {
			if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != param {
				t.Errorf("%s: %v", body, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		want := `{"model":"m",` + c.want + `}`
		if !strings.Contains(want, `"sampling"`) {
			want = `{"model":"m","sampling":{},` + c.want + `}`
		}
		calltest.WantRequest(t, body, got.Request, want)
		if in.Header() != c.left {
			t.Errorf("%s: %q is left out, want %q", body, in.Header(), c.left)
		}
		if got.Stream == strings.Contains(body, `"stream":false`) || got.Loaded != nil {
			t.Errorf("%s: stream is %t", body, got.Stream)
		}
	}
}

// TestImagesPrecedeTheText: the sources fill the images of the request.
func TestImagesPrecedeTheText(t *testing.T) {
	for api, body := range map[string]string{
		"chat":     `{"model":"m","messages":[{"role":"user","content":"hi","images":["QQ==","data:1"]}]}`,
		"generate": `{"model":"m","prompt":"hi","images":["QQ==","data:1"]}`,
	} {
		c := parsers[api].Parse(t, body)
		placed := c.Request.GetMessages()[0].GetImages()
		prefix := map[string]string{"chat": "messages[0]."}[api]
		if len(c.Images) != 2 || c.Images[0].Base64 != "QQ==" || c.Images[1].URL != "data:1" || c.Images[1].Param != prefix+"images[1]" ||
			placed[0].GetImage() != c.Images[0].To || placed[1].GetImage() != c.Images[1].To || placed[1].GetOffset() != 0 {
			t.Errorf("%s: %+v", api, c.Images)
		}
	}
}

func TestErrorsOfInnerHopsNameFieldsOfTheBody(t *testing.T) {
	for api, names := range map[string]map[string]string{
		"chat": {
			"sampling.max_tokens": "options.num_predict", "sampling.repetition_penalty": "options.repeat_penalty", "stop[1]": "options.stop[1]", "sampling.guide": "format",
			"template_variables": "think", "images": "messages", "prompt": "messages", "messages[1].content": "messages[1].content", "tools[0].name": "tools[0].function.name",
			"sampling.logprobs": "logprobs", "model": "model",
		},
		"generate": {"images": "images", "prompt": "prompt", "messages[0].content": "prompt", "sampling.top_p": "options.top_p"},
	} {
		c := parsers[api].Parse(t, map[string]string{"chat": `{"model":"m","messages":[{"role":"user","content":"x"}]}`, "generate": `{"model":"m","prompt":"x"}`}[api])
		for inner, want := range names {
			if got := c.Param(inner); got != want {
				t.Errorf("%s: %s is called %s, want %s", api, inner, got, want)
			}
		}
	}
}

func TestEmbedsInBothForms(t *testing.T) {
	for _, c := range []struct {
		older bool
		body  string
		texts []string
		left  string
	}{
		{false, `"input":"a","keep_alive":"1m","truncate":true,"options":{"num_ctx":1}`, []string{"a"}, "keep_alive, options, truncate"},
		{false, `"input":["a","b"],"dimensions":0`, []string{"a", "b"}, ""},
		{true, `"prompt":"a"`, []string{"a"}, ""},
		{false, `"input":[]`, nil, "refused: input"},
		{false, `"prompt":"a"`, nil, "refused: input"},
		{false, `"input":["a",1]`, nil, "refused: input[1]"},
		{false, `"input":["a"` + strings.Repeat(`,"a"`, 2048) + `]`, nil, "refused: input"},
		{true, `"prompt":1`, nil, "refused: prompt"},
		{true, `"model":"","prompt":"a"`, nil, "refused: model"},
	} {
		parse := ollama.ParseEmbed
		if c.older {
			parse = ollama.ParseEmbeddings
		}
		body := `{"model":"m:latest",` + c.body + `}`
		if strings.Contains(c.body, `"model"`) {
			body = "{" + c.body + "}"
		}
		in := &strict.Reading{}
		got, err := parse([]byte(body), in)
		if param, refused := strings.CutPrefix(c.left, "refused: "); refused {
			if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != param {
				t.Errorf("%.80s: %v", body, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(body, err)
		}
		var texts []string
		for _, input := range got.Request.GetInputs() {
			texts = append(texts, input.GetText())
		}
		if !slices.Equal(texts, c.texts) || got.Request.GetModel() != "m" || in.Header() != c.left {
			t.Errorf("%s: %v, left out %q", body, got.Request, in.Header())
		}
		field := map[bool]string{true: "input[0]", false: "input"}[len(texts) > 1]
		if c.older {
			field = "prompt"
		}
		if got := got.Param("inputs[0]"); got != field {
			t.Errorf("%s: the text is called %s", body, got)
		}
	}
}

// FuzzParse: a body becomes a request, or is INVALID.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"hi","images":["QQ=="]}],"options":{"stop":["x"],"seed":1.0}}`))
	f.Add([]byte(`{"model":"m","prompt":"hi","raw":true,"images":["QQ=="],"think":"low","format":{}}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]},{"role":"tool","tool_name":"f"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range parsers {
			c, err := parse(body, nil)
			if err != nil {
				if e := streamerr.As(err); e.Reason != streamerr.Invalid || e.Text() == "" {
					t.Error(err)
				}
				continue
			}
			if _, err := proto.Marshal(c.Request); err != nil || asksNothing(c) != (c.Loaded != nil) {
				t.Error(c.Request, err)
			}
		}
	})
}

func asksNothing(c *call.Call) bool {
	return len(c.Request.GetMessages())+len(c.Request.GetPrompts()) == 0
}
