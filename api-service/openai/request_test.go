package openai_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const hello = `"model":"m","messages":[{"role":"user","content":"hello"}]`

func TestEveryFieldReachesTheRequest(t *testing.T) {
	c, err := openai.ParseChat([]byte(`{
		"model": "m",
		"messages": [
			{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
			{"role":"user","content":"u","name":"n"},
			{"role":"assistant","content":null,"refusal":null,"tool_calls":[]},
			{"role":"user","content":""}],
		"stream": true, "stream_options": {"include_usage": true, "include_obfuscation": false},
		"max_completion_tokens": 7, "stop": ["x","y"], "temperature": 0.5, "top_p": 0.25, "seed": -1,
		"frequency_penalty": -2, "presence_penalty": 2, "logit_bias": {"5": -100}, "n": 1, "logprobs": false, "top_logprobs": null,
		"top_k": -1, "min_p": 0.125, "repetition_penalty": 1.5, "min_tokens": 2, "ignore_eos": true, "stop_token_ids": [1, 2],
		"response_format": {"type":"text"}, "tools": [], "tool_choice": "none", "modalities": ["text"],
		"user": "u", "metadata": {"a":"b"}, "store": false, "service_tier": "flex", "parallel_tool_calls": true
	}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &chatv1.ChatRequest{
		Model: "m", N: 1,
		Messages: []*chatv1.Message{
			{Role: "system", Content: "ab"}, {Role: "user", Content: "u", Name: "n"}, {Role: "assistant"}, {Role: "user"},
		},
		Stop:       []string{"x", "y"},
		ToolChoice: &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_NONE}, ParallelToolCalls: proto.Bool(true),
		Sampling: &llmv1.Sampling{
			Temperature: proto.Float32(0.5), TopP: proto.Float32(0.25), Seed: proto.Uint64(1<<64 - 1), MaxTokens: proto.Uint32(7),
			FrequencyPenalty: proto.Float32(-2), PresencePenalty: proto.Float32(2), LogitBias: map[uint32]float32{5: -100},
			TopK: proto.Uint32(0), MinP: proto.Float32(0.125), RepetitionPenalty: proto.Float32(1.5), MinTokens: proto.Uint32(2),
			IgnoreEos: true, StopTokenIds: []uint32{1, 2},
		},
		Claim: &llmv1.Claim{Tier: llmv1.Tier_TIER_FLEX}, Session: "u",
	}
	if !c.Stream || !c.IncludeUsage || !proto.Equal(c.Request, want) {
		t.Errorf("got  %v\nwant %v", c.Request, want)
	}
	for inner, outer := range map[string]string{"sampling.max_tokens": "max_completion_tokens", "sampling.top_p": "top_p", "prompt": "messages", "messages[0].role": "messages[0].role"} {
		if got := c.Param(inner); got != outer {
			t.Errorf("%s is called %s, want %s", inner, got, outer)
		}
	}
}

func TestNullAndAbsentAreTheSame(t *testing.T) {
	for _, body := range []string{`{` + hello + `}`, `{` + hello + `,"temperature":null,"stop":null,"stream":null,"max_tokens":null,"tools":null,"seed":null}`} {
		c, err := openai.ParseChat([]byte(body), nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.Stream || c.Request.GetSampling().Temperature != nil || c.Request.GetSampling().Seed != nil || c.Request.GetStop() != nil {
			t.Error(c.Request)
		}
	}
}

func TestBadBodiesAreRefusedByName(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for body, want := range map[string]struct{ param, message string }{
		``:                                      {"", "the body is empty"},
		` `:                                     {"", "the body is empty"},
		`{`:                                     {"", "not valid JSON"},
		`{"a":1}x`:                              {"", "not valid JSON"},
		`[]`:                                    {"", "must be a JSON object"},
		`null`:                                  {"", "must be a JSON object"},
		"{\"a\":\"\xff\"}":                      {"", "not valid UTF-8"},
		`{}`:                                    {"model", "model is missing"},
		`{"model":"m"}`:                         {"messages", "missing or empty"},
		`{"model":"m","messages":[]}`:           {"messages", "missing or empty"},
		`{"model":"m","messages":"hi"}`:         {"messages", "must be an array; got a string"},
		`{"model":"m","messages":` + deep + `}`: {"messages[0]", "must be an object; got an array"},
		`{"model":"m","messages":[{"content":"x"}]}`:                                                                          {"messages[0].role", "messages[0].role is missing"},
		`{"model":"m","messages":[{"role":"robot","content":"x"}]}`:                                                           {"messages[0].role", `"robot"`},
		`{"model":"m","messages":[{"role":"user"}]}`:                                                                          {"messages[0].content", "missing"},
		`{"model":"m","messages":[{"role":"user","content":5}]}`:                                                              {"messages[0].content", "got the number 5"},
		`{"model":"m","messages":[{"role":"system","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`:               {"messages[0].content[0].image_url", "not supported"},
		`{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio"}]}]}`:                                       {"messages[0].content[0].input_audio", "not supported"},
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`:                                         {"messages[0].content[0].image_url", "is missing"},
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`:                          {"messages[0].content[0].image_url.url", "is missing"},
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x","detail":"most"}}]}]}`: {"messages[0].content[0].image_url.detail", `"most"`},
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text"}]}]}`:                                              {"messages[0].content[0].text", "is missing"},
		`{"model":"m","messages":[{"role":"user","content":"x","color":"red"}]}`:                                              {"messages[0].color", "unknown field"},
		`{"model":7,"messages":[]}`:                                {"model", "must be a string; got the number 7"},
		`{` + hello + `,"max_tokens":-1}`:                          {"max_tokens", "is -1"},
		`{` + hello + `,"max_tokens":0}`:                           {"max_tokens", "is 0"},
		`{` + hello + `,"max_tokens":1.5}`:                         {"max_tokens", "must be an integer; got the number 1.5"},
		`{` + hello + `,"max_tokens":1e99}`:                        {"max_tokens", "must be an integer"},
		`{` + hello + `,"max_tokens":"5"}`:                         {"max_tokens", "must be an integer; got a string"},
		`{` + hello + `,"max_tokens":5,"max_completion_tokens":6}`: {"max_tokens", "contradict"},
		`{` + hello + `,"temperature":3}`:                          {"temperature", "is 3; it must be from 0 to 2"},
		`{` + hello + `,"temperature":"hot"}`:                      {"temperature", "must be a number; got a string"},
		`{` + hello + `,"top_p":-0.5}`:                             {"top_p", "is -0.5"},
		`{` + hello + `,"frequency_penalty":2.5}`:                  {"frequency_penalty", "is 2.5"},
		`{` + hello + `,"presence_penalty":[]}`:                    {"presence_penalty", "got an array"},
		`{` + hello + `,"seed":1.5}`:                               {"seed", "must be an integer"},
		`{` + hello + `,"n":0}`:                                    {"n", "from 1 to 128"},
		`{` + hello + `,"logprobs":2}`:                             {"logprobs", "must be a boolean"},
		`{` + hello + `,"logprobs":true,"top_logprobs":21}`:        {"top_logprobs", "from 0 to 20"},
		`{` + hello + `,"n":1.5}`:                                  {"n", "must be an integer"},
		`{` + hello + `,"include_stop_str_in_output":1}`:           {"include_stop_str_in_output", "must be a boolean"},
		`{` + hello + `,"skip_special_tokens":"no"}`:               {"skip_special_tokens", "must be a boolean"},
		`{` + hello + `,"spaces_between_special_tokens":false}`:    {"spaces_between_special_tokens", "not supported"},
		`{` + hello + `,"stop_token_ids":[1,null]}`:                {"stop_token_ids[1]", "got null"},
		`{` + hello + `,"prompt":"x"}`:                             {"prompt", "unknown field"},
		`{` + hello + `,"echo":true}`:                              {"echo", "not supported"},
		`{` + hello + `,"top_logprobs":3}`:                         {"top_logprobs", "only allowed when logprobs is true"},
		`{` + hello + `,"stream":"yes"}`:                           {"stream", "must be a boolean; got a string"},
		`{` + hello + `,"stream":true,"stream_options":5}`:         {"stream_options", "must be an object"},
		`{` + hello + `,"stream":true,"stream_options":{"x":1}}`:   {"stream_options.x", "unknown field"},
		`{` + hello + `,"stream_options":{"include_usage":true}}`:  {"stream_options", "only allowed when stream is true"},
		`{` + hello + `,"stop":5}`:                                 {"stop", "a string or an array of strings; got the number 5"},
		`{` + hello + `,"stop":["a",5]}`:                           {"stop[1]", "must be a string"},
		`{` + hello + `,"logit_bias":{"x":1}}`:                     {"logit_bias", `"x"`},
		`{` + hello + `,"logit_bias":{"1":101}}`:                   {"logit_bias.1", "from -100 to 100"},
		`{` + hello + `,"stop_token_ids":[-1]}`:                    {"stop_token_ids[0]", "is -1"},
		`{` + hello + `,"modalities":["audio"]}`:                   {"modalities", `["text"]`},
		`{` + hello + `,"audio":{"voice":"a"}}`:                    {"audio", "not supported"},
		`{` + hello + `,"temprature":1}`:                           {"temprature", "unknown field"},
		`{` + hello + `,"bad\u0000\nname":1}`:                      {`bad\x00\nname`, "unknown field"},
	} {
		_, err := openai.ParseChat([]byte(body), &strict.Reading{Strict: true})
		if err == nil {
			t.Errorf("%s is accepted", body)
			continue
		}
		e := streamerr.As(err)
		if e.Reason != streamerr.Invalid || e.Param != want.param || !strings.Contains(e.Message, want.message) {
			t.Errorf("%.120s\n got param %q, %v\nwant param %q, %s", body, e.Param, e, want.param, want.message)
		}
	}
}

func FuzzParseChat(f *testing.F) {
	f.Add([]byte(`{` + hello + `}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"\u0000"}]}],"logit_bias":{"1":2}}`))
	f.Add([]byte(`{"model":"m","messages":[` + askedGet + `,{"role":"tool","content":[{"type":"image","source":{"data":"x"}},{"type":"file","file":{}}]},{"role":"function","name":"f","content":1}],
		"tools":[{"type":"custom","custom":{"name":"p","format":{"type":"grammar"}}},{"type":"mcp"}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"custom","name":"p"}]}},
		"functions":[{"name":"f"}],"structured_outputs":{"choice":["a"]},"reasoning":{"effort":"low"},"thinking":{"type":"enabled"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := openai.ParseChat(body, nil)
		if err != nil {
			if e := streamerr.As(err); e.Reason != streamerr.Invalid || e.Text() == "" {
				t.Error(err)
			}
			return
		}
		if c.Request.GetModel() == "" || len(c.Request.GetMessages()) == 0 {
			t.Error(c.Request)
		}
		if _, err := proto.Marshal(c.Request); err != nil {
			t.Error(err) // for example, invalid UTF-8 could not cross to the chat-service
		}
	})
}

func BenchmarkParseChat(b *testing.B) {
	body := []byte(`{"model":"m","stream":true,"temperature":0,"messages":[{"role":"system","content":"be nice"},{"role":"user","content":"hello"}]}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := openai.ParseChat(body, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func TestStreamIsImplied(t *testing.T) {
	const head = `{"model":"m","messages":[{"role":"user","content":"x"}]`
	for body, param := range map[string]string{
		head + `}`: "-", head + `,"stream":true}`: "-", head + `,"stream":null}`: "-", head + `,"stream_options":{"include_usage":true}}`: "-",
		head + `,"stream":false}`: "stream", head + `,"n":0}`: "-", head + `,"n":-1}`: "n", `{"model":"m","prompt":"x"}`: "-", head + `,"prompt":"x"}`: "messages",
	} {
		c, err := openai.ParseStream([]byte(body), nil)
		if err == nil && (param != "-" || !c.Stream) || err != nil && streamerr.As(err).Param != param {
			t.Errorf("%s: %+v, %v", body, c, err)
		}
	}
}

func TestShortestTimeoutIsNotTakenForNoTimeout(t *testing.T) {
	c, err := openai.ParseChat([]byte(`{`+hello+`,"timeout":1e-10}`), nil)
	if err != nil || c.Timeout <= 0 {
		t.Error(c, err)
	}
}

func TestPromptCacheKeyNamesTheSessionBeforeUser(t *testing.T) {
	for fields, want := range map[string][2]string{
		``:                                     {"", ""},
		`,"user":"","prompt_cache_key":null`:   {"", ""},
		`,"user":"u"`:                          {"u", "user"},
		`,"prompt_cache_key":"k"`:              {"k", "prompt_cache_key"},
		`,"prompt_cache_key":"k","user":"u"`:   {"k", "prompt_cache_key"},
		`,"user":"u","prompt_cache_key":"k"`:   {"k", "prompt_cache_key"},
		`,"user":"u","prompt_cache_key":""`:    {"u", "user"},
		`,"prompt_cache_key":"","user":"u"`:    {"u", "user"},
		`,"user":"u","safety_identifier":"id"`: {"u", "user"},
	} {
		c, err := openai.ParseChat([]byte(`{`+hello+fields+`}`), nil)
		if err != nil || c.Request.GetSession() != want[0] || c.Param("session") != want[1] {
			t.Errorf("%s: session %q of %q: %v", fields, c.Request.GetSession(), c.Param("session"), err)
		}
	}
	if c, err := openai.ParseCompletion([]byte(`{"model":"m","prompt":"p","user":"u"}`), nil); err != nil || c.Request.GetSession() != "u" {
		t.Error(c, err)
	}
	for _, field := range []string{"user", "prompt_cache_key"} {
		in := &strict.Reading{}
		if c, err := openai.ParseChat([]byte(`{`+hello+`,"`+field+`":5}`), in); err != nil || c.Request.GetSession() != "" || in.Header() != field {
			t.Error(c, err, in.Header())
		}
	}
}

func TestImagesOfAUsersMessageKeepTheirPlaces(t *testing.T) {
	c, err := openai.ParseChat([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a/1","detail":"low"}},
		{"type":"text","text":"äb"},{"type":"image_url","image_url":{"url":"data:2"}},{"type":"text","text":"c"}]}]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, images := c.Request.GetMessages()[0], c.Call().Images
	if m.GetContent() != "äbc" || len(m.GetImages()) != 2 || m.GetImages()[0].GetOffset() != 0 || m.GetImages()[1].GetOffset() != 3 {
		t.Error(m)
	}
	if len(images) != 2 || images[0].URL != "https://a/1" || images[0].Param != "messages[0].content[0].image_url.url" || images[1].To != m.GetImages()[1].GetImage() {
		t.Errorf("%+v", images)
	}
}
