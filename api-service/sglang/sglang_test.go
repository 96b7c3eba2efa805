package sglang_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/call/calltest"
	"github.com/whence-dev/whence/api-service/sglang"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func text(s string) *chatv1.Prompt {
	return &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: s}}
}

func ids(ids ...uint32) *chatv1.Prompt {
	return &chatv1.Prompt{Content: &chatv1.Prompt_Ids{Ids: &chatv1.TokenIDs{Ids: ids}}}
}

// TestRequestsOfSGLangsClientsAreAnswered checks what each body adds to the request, and which fields are left out.
func TestRequestsOfSGLangsClientsAreAnswered(t *testing.T) {
	const plain = `,"sampling":{"maxTokens":128}`
	guide := func(schema string) string {
		return `,"sampling":{"maxTokens":128,"guide":{"forms":[{"schema":"` + schema + `"}]}}`
	}
	for _, c := range []struct{ body, want, left string }{
		// sglang.lang and bench_serving, with their defaults
		{`"text":"a","sampling_params":{"skip_special_tokens":true,"spaces_between_special_tokens":true,"max_new_tokens":128,"min_new_tokens":0,"n":1,"stop":[],"stop_token_ids":[],"stop_regex":[],
			"temperature":1.0,"top_p":1.0,"top_k":-1,"min_p":0.0,"frequency_penalty":0.0,"presence_penalty":0.0,"ignore_eos":false,"regex":null,"json_schema":null}`,
			`,"n":1,"sampling":{"maxTokens":128,"minTokens":0,"temperature":1,"topP":1,"topK":0,"minP":0,"frequencyPenalty":0,"presencePenalty":0}`, ""},
		{`"text":"a","sampling_params":{"temperature":0.0,"max_new_tokens":32000,"ignore_eos":true},"stream":true,"lora_path":null,"return_logprob":false,"return_routed_experts":false,"logprob_start_len":-1,"top_logprobs_num":0,"image_data":null`,
			`,"sampling":{"maxTokens":32000,"temperature":0,"ignoreEos":true}`, ""},
		{`"text":"a","sampling_params":null,"rid":null,"input_ids":null,"input_embeds":null,"audio_data":null,"video_data":[],"token_ids_logprob":null,"return_hidden_states":false,"modalities":null,"session_params":null,
			"custom_logit_processor":null,"lora_id":null,"bootstrap_room":null,"priority":null,"extra_key":null,"novelty":null`, plain, ""},
		// null, empty and zero
		{`"text":"a","rid":"","input_ids":[],"image_data":[],"lora_path":"","model":null,"session_params":{},"sampling_params":[]`, plain, ""},
		{`"text":"a","lora_path":[null],"sampling_params":{}`, plain, ""},
		{`"text":"a","sampling_params":{"max_new_tokens":null,"regex":"","ebnf":"","json_schema":"","structural_tag":null,"stop":"","stop_regex":"","logit_bias":null,"custom_params":null,"top_k":null}`, plain, ""},
		{`"text":"a","sampling_params":{"stop":["",""]}`, plain, ""},
		{`"text":"","image_data":""`, plain, ""},
		// guides
		{`"text":"a","sampling_params":{"regex":"a*"}`, `,"sampling":{"maxTokens":128,"guide":{"forms":[{"pattern":"a*"}]}}`, ""},
		{`"text":"a","sampling_params":{"json_schema":"{\"type\": \"object\"}"}`, guide(`{\"type\":\"object\"}`), ""},
		{`"text":"a","sampling_params":{"json_schema":{"type": "object"}}`, guide(`{\"type\":\"object\"}`), ""},
		{`"text":"a","sampling_params":{"json_schema":"$$ANY$$"}`, guide(`{}`), ""},
		// left out
		{`"text":"a","sampling_params":{"spaces_between_special_tokens":false,"custom_params":{"a":1},"stream_interval":4,"beam_width":2}`, plain,
			"sampling_params.beam_width, sampling_params.custom_params, sampling_params.spaces_between_special_tokens, sampling_params.stream_interval"},
		{`"text":"a","return_hidden_states":true,"return_logprob":false,"logprob_start_len":0,"token_ids_logprob":[1],"custom_logit_processor":"x","return_routed_experts":true,"priority":3,"novelty":1`, plain,
			"custom_logit_processor, logprob_start_len, novelty, priority, return_hidden_states, return_routed_experts, token_ids_logprob"},
		{`"text":"a","rid":"with space"`, plain, "rid"},
		{`"text":"a","rid":["x","y"]`, plain, "rid"},
		{`"text":"a","lora_path":"b","model":"m"`, `,"model":"b"` + plain, ""},
		{`"text":["a"],"sampling_params":[{"max_new_tokens":4}],"return_logprob":[false],"top_logprobs_num":[0],"logprob_start_len":[-1]`, `,"sampling":{"maxTokens":4}`, ""},
		{`"text":"a","lora_path":["b"]`, `,"model":"b"` + plain, ""},
	} {
		in := &strict.Reading{}
		got, err := sglang.Parse([]byte("{"+c.body+"}"), in)
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		prompt := `a`
		if strings.HasPrefix(c.body, `"text":""`) {
			prompt = ""
		}
		calltest.WantRequest(t, c.body, got.Request, `{"prompts":[{"text":"`+prompt+`"}]`+c.want+`}`)
		if in.Header() != c.left || got.ID != "" {
			t.Errorf("%s: %q is left out, want %q; the id is %q", c.body, in.Header(), c.left, got.ID)
		}
	}
	if c, err := sglang.Parse([]byte(`{"text":["a","b"],"rid":["x","x"]}`), nil); err != nil || c.ID != "" {
		t.Errorf("ids that are the same: %v", err)
	}
	if c, err := sglang.Parse([]byte(`{"text":"","input_ids":[1]}`), nil); err != nil || !proto.Equal(c.Request.GetPrompts()[0], ids(1)) {
		t.Errorf("ids beside an empty text: %v", err)
	}
}

func TestModelInfoIsWhatSGLangsClientsAskFor(t *testing.T) {
	got := string(sglang.ModelInfo(&chatv1.Model{Id: "m", ContextLength: 9, Images: true}))
	if want := `{"model_path":"m","tokenizer_path":"m","is_generation":true,"has_image_understanding":true,"context_length":9}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestEveryFieldReachesTheRequest(t *testing.T) {
	c, err := sglang.Parse([]byte(`{"text":"a","rid":"r1","model":"m","stream":true,"return_logprob":true,"top_logprobs_num":2,"logprob_start_len":-1,
		"return_text_in_logprobs":true,"log_metrics":true,"sampling_params":{"max_new_tokens":7,"min_new_tokens":2,"temperature":0.5,"top_p":0.25,"top_k":-1,
		"min_p":0.125,"frequency_penalty":1,"presence_penalty":-1,"repetition_penalty":1.5,"stop":["x","y"],"stop_token_ids":[3],"ignore_eos":true,"no_stop_trim":true,
		"skip_special_tokens":false,"spaces_between_special_tokens":true,"n":2,"sampling_seed":5,"logit_bias":{"4":-5}}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &chatv1.ChatRequest{
		Model: "m", Prompts: []*chatv1.Prompt{text("a")}, N: 2, Stop: []string{"x", "y"}, IncludeStop: true, KeepSpecial: true,
		Sampling: &llmv1.Sampling{
			MaxTokens: new(uint32(7)), MinTokens: new(uint32(2)), Temperature: new(float32(0.5)), TopP: new(float32(0.25)), TopK: new(uint32(0)), MinP: new(float32(0.125)),
			FrequencyPenalty: new(float32(1)), PresencePenalty: new(float32(-1)), RepetitionPenalty: new(float32(1.5)), StopTokenIds: []uint32{3}, IgnoreEos: true,
			Seed: new(uint64(5)), LogitBias: map[uint32]float32{4: -5}, Logprobs: new(uint32(2)),
		},
	}
	if !proto.Equal(c.Request, want) || !c.Stream || c.ID != "r1" {
		t.Errorf("got  %v\nwant %v", c.Request, want)
	}
	for inner, outer := range map[string]string{
		"sampling.max_tokens": "sampling_params.max_new_tokens", "prompt[1][2]": "text[1][2]", "stop[1]": "sampling_params.stop[1]", "n": "sampling_params.n", "stream_id": "rid", "model": "model",
	} {
		if got := c.Param(inner); got != outer {
			t.Errorf("%s is called %s, want %s", inner, got, outer)
		}
	}
}

func TestPromptsInAllForms(t *testing.T) {
	for form, want := range map[string][]*chatv1.Prompt{
		`"text":"a"`: {text("a")}, `"text":["a","b"]`: {text("a"), text("b")}, `"input_ids":[1,2]`: {ids(1, 2)}, `"input_ids":[[1],[2,3]]`: {ids(1), ids(2, 3)},
	} {
		c, err := sglang.Parse([]byte(`{`+form+`}`), nil)
		if err != nil || !proto.Equal(c.Request, &chatv1.ChatRequest{Prompts: want, Sampling: &llmv1.Sampling{MaxTokens: new(uint32(128))}}) {
			t.Errorf("%s: %v, %v", form, c, err)
		}
	}
}

func TestBadBodiesAreRefusedByName(t *testing.T) {
	for body, param := range map[string]string{
		`{"text":[` + strings.Repeat(`"",`, 64) + `""]}`: "text", `{"input_ids":[` + strings.Repeat(`[],`, 64) + `[]]}`: "input_ids", `{"input_ids":5}`: "input_ids",
		`{}`: "text", `{"text":[]}`: "text", `{"text":5}`: "text", `{"text":["a",5]}`: "text[1]", `{"input_ids":["a"]}`: "input_ids[0]", `{"input_ids":[[1],[-1]]}`: "input_ids[1][0]",
		`{"text":"a","input_ids":[1]}`:       "text",
		`{"text":["a","b"],"rid":["x",5]}`:   "rid[1]",
		`{"text":"a","sampling_params":[1]}`: "sampling_params", `{"text":"a","sampling_params":{"regex":["a*"]}}`: "sampling_params.regex", `{"text":"a","sampling_params":{"ebnf":"a"}}`: "sampling_params.ebnf",
		`{"text":"a","sampling_params":{"structural_tag":"a"}}`: "sampling_params.structural_tag", `{"text":"a","sampling_params":{"stop_regex":"a+"}}`: "sampling_params.stop_regex",
		`{"text":"a","sampling_params":{"json_schema":"{"}}`: "sampling_params.json_schema", `{"text":"a","sampling_params":{"json_schema":[1]}}`: "sampling_params.json_schema", `{"text":"a","sampling_params":{"json_schema":"1"}}`: "sampling_params.json_schema",
		`{"text":"a","session_params":{"id":"s"}}`: "session_params", `{"text":"a","video_data":["x"]}`: "video_data", `{"text":"a","audio_data":"x"}`: "audio_data", `{"input_embeds":[[0.5]]}`: "input_embeds",
		`{"text":["a","b"],"lora_path":["x","y"]}`: "lora_path", `{"text":"a","lora_path":5}`: "lora_path", `{"text":["a","b"],"lora_path":[null,"y"]}`: "lora_path", `{"text":["a","b"],"sampling_params":[{"n":1},{"n":2}]}`: "sampling_params", `{"text":"a","logprob_start_len":"x"}`: "logprob_start_len", `{"text":"a","sampling_params":{"max_new_tokens":0}}`: "sampling_params.max_new_tokens",
		`{"text":"a","sampling_params":{"top_p":0}}`: "sampling_params.top_p", `{"text":"a","sampling_params":{"temperature":"x"}}`: "sampling_params.temperature",
		`{"text":"a","sampling_params":{"n":0}}`:                "sampling_params.n",
		`{"text":"a","sampling_params":{"logit_bias":{"x":1}}}`: "sampling_params.logit_bias", `{"text":"a","top_logprobs_num":21}`: "top_logprobs_num",
		`{"text":"a","image_data":5}`: "image_data", `{"text":"a","image_data":["x",5]}`: "image_data[1]", `{"text":["a","b"],"image_data":"x"}`: "image_data",
		`{"text":["a","b"],"image_data":["x"]}`: "image_data", `{"text":["a","b"],"image_data":["x",[{"format":"processor_output"}]]}`: "image_data[1][0]", `{"text":"a","stream":1}`: "stream", `{"text":"a","return_logprob":1}`: "return_logprob",
	} {
		_, err := sglang.Parse([]byte(body), nil)
		if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != param {
			t.Errorf("%s: %v (param %q)", body, err, e.Param)
		}
	}
}

var started = &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{StreamId: "s", PromptTokens: 3}}}

func delta(choice uint32, text string, likely ...*chatv1.TokenLogprob) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Choice: choice, Text: text, Tokens: 1, Logprobs: likely}}}
}

func choiceEnd(e *chatv1.ChoiceEnd) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_ChoiceEnd{ChoiceEnd: e}}
}

func end(e *llmv1.End) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: e}}
}

var latency = regexp.MustCompile(`,"e2e_latency":[0-9.e-]+`)

// lines collects data lines.
type lines struct{ all []string }

func (l *lines) Begin() []byte            { return nil }
func (l *lines) BeginEvent(string) []byte { return nil }
func (l *lines) End(line []byte)          { l.all = append(l.all, string(line)) }

func written(t *testing.T, body string, items ...*chatv1.GenerateResponse) (all []string) {
	t.Helper()
	c, err := sglang.Parse([]byte(body), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines, write, gather := &lines{}, c.Events(), c.Whole()
	for _, out := range items {
		if c.Stream {
			write(out, lines)
		} else if body := gather(out); body != nil {
			lines.End(body)
		}
	}
	for _, data := range lines.all {
		if data != "[DONE]" && !json.Valid([]byte(data)) {
			t.Errorf("%s is not JSON", data)
		}
		all = append(all, latency.ReplaceAllString(data, ""))
	}
	return all
}

func TestEventsHaveTheWholeTextSoFar(t *testing.T) {
	usage := &llmv1.Usage{PromptTokens: 3, CompletionTokens: 3, CachedTokens: new(uint32(1))}
	got := written(t, `{"text":"a","rid":"s","stream":true,"return_logprob":true,"top_logprobs_num":1}`, started,
		delta(0, "x", &chatv1.TokenLogprob{Id: 5, Token: "x", Logprob: -1, Top: []*chatv1.TokenLogprob{{Id: 6, Logprob: -0.5}}}), delta(0, "y"),
		end(&llmv1.End{Finish: llmv1.Finish_FINISH_STOP, MatchedToken: new(uint32(0)), Usage: usage}))
	const likely = `,"output_token_logprobs":[[-1,5,null]],"output_top_logprobs":[[[-0.5,6,null]]]`
	want := []string{
		`{"text":"x","meta_info":{"id":"s","finish_reason":null,"prompt_tokens":3,"completion_tokens":1,"cached_tokens":0` + likely + `}}`,
		`{"text":"xy","meta_info":{"id":"s","finish_reason":null,"prompt_tokens":3,"completion_tokens":2,"cached_tokens":0` + likely + `}}`,
		`{"text":"xy","meta_info":{"id":"s","finish_reason":{"type":"stop","matched":0},"prompt_tokens":3,"completion_tokens":3,"cached_tokens":1` + likely + `}}`,
		`[DONE]`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestBatchIsAListInTheOrderOfItsPrompts(t *testing.T) {
	items := []*chatv1.GenerateResponse{started, delta(1, "b"), delta(0, "a"),
		choiceEnd(&chatv1.ChoiceEnd{Choice: 1, Finish: llmv1.Finish_FINISH_STOP, MatchedStop: "!", Usage: &llmv1.Usage{PromptTokens: 2, CompletionTokens: 9}}),
		choiceEnd(&chatv1.ChoiceEnd{Choice: 0, Finish: llmv1.Finish_FINISH_LENGTH, Usage: &llmv1.Usage{PromptTokens: 1, CompletionTokens: 8}}), end(&llmv1.End{})}
	got := written(t, `{"text":["x","y"],"rid":["r1","r2"]}`, items...)
	want := `[{"text":"a","meta_info":{"id":"r1","finish_reason":{"type":"length","length":8},"prompt_tokens":1,"completion_tokens":8,"cached_tokens":0}},` +
		`{"text":"b","meta_info":{"id":"r2","finish_reason":{"type":"stop","matched":"!"},"prompt_tokens":2,"completion_tokens":9,"cached_tokens":0}}]`
	if len(got) != 1 || got[0] != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	events := written(t, `{"text":["x","y"],"stream":true}`, items...)
	if len(events) != 5 || !strings.Contains(events[0], `"id":"s.1"`) || !strings.HasSuffix(events[0], `,"index":1}`) || !strings.HasSuffix(events[3], `"index":0}`) {
		t.Errorf("%q", events)
	}
	if got := written(t, `{"text":["x"]}`, started, delta(0, "a"), end(&llmv1.End{Finish: llmv1.Finish_FINISH_LENGTH})); !strings.HasPrefix(got[0], `[{"text":"a"`) {
		t.Error(got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"text":["a"],"rid":["b"],"sampling_params":{"stop":"x","logit_bias":{"1":2}}}`))
	f.Add([]byte(`{"input_ids":[[1],[2]]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := sglang.Parse(body, nil)
		if err != nil {
			if e := streamerr.As(err); e.Reason != streamerr.Invalid || e.Text() == "" {
				t.Error(err)
			}
			return
		}
		if _, err := proto.Marshal(c.Request); err != nil || len(c.Request.GetPrompts()) == 0 {
			t.Error(c.Request, err)
		}
	})
}

func TestWholeAnswerLacksTheTextBeforeARestart(t *testing.T) {
	again := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Restarted{Restarted: &chatv1.Restarted{}}}
	usage := &llmv1.Usage{PromptTokens: 3, CompletionTokens: 1}
	got := written(t, `{"text":"a","rid":"s","return_logprob":true}`, started,
		delta(0, "lost", &chatv1.TokenLogprob{Id: 5, Token: "lost", Logprob: -1}), again,
		delta(0, "new", &chatv1.TokenLogprob{Id: 6, Token: "new", Logprob: -2}), end(&llmv1.End{Finish: llmv1.Finish_FINISH_LENGTH, Usage: usage}))
	const want = `{"text":"new","meta_info":{"id":"s","finish_reason":{"type":"length","length":1},"prompt_tokens":3,"completion_tokens":1,"cached_tokens":0,"output_token_logprobs":[[-2,6,null]]}}`
	if len(got) != 1 || got[0] != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestImagesBelongToTheirPrompts(t *testing.T) {
	type source struct{ param, url, base64 string }
	for body, want := range map[string][][]source{
		`{"text":"a","image_data":"https://a/1"}`:                                        {{{"image_data", "https://a/1", ""}}},
		`{"input_ids":[1],"image_data":["data:1","QQ=="]}`:                               {{{"image_data[0]", "data:1", ""}, {"image_data[1]", "", "QQ=="}}},
		`{"text":["a","b","c"],"image_data":["data:1",null,["data:2","file:///etc/x"]]}`: {{{"image_data[0]", "data:1", ""}}, nil, {{"image_data[2][0]", "data:2", ""}, {"image_data[2][1]", "file:///etc/x", ""}}},
		`{"text":"a","image_data":null}`:                                                 {nil},
		`{"text":"a","image_data":{"url":"https://a/1","detail":"auto"}}`:                {{{"image_data.url", "https://a/1", ""}}},
	} {
		c, err := sglang.Parse([]byte(body), nil)
		if err != nil {
			t.Fatal(body, err)
		}
		left := c.Images
		for i, prompt := range c.Request.GetPrompts() {
			var got []source
			for _, image := range prompt.GetImages() {
				if left[0].To != image {
					t.Errorf("%s: the image %s is not that of prompt %d", body, left[0].Param, i)
				}
				got, left = append(got, source{left[0].Param, left[0].URL, left[0].Base64}), left[1:]
			}
			if !slices.Equal(got, want[i]) {
				t.Errorf("%s: %v, want %v", body, got, want[i])
			}
		}
	}
}
