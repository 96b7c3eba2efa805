package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// items makes a stream of messages.
func items(messages ...proto.Message) (all []*chatv1.GenerateResponse) {
	for _, m := range messages {
		out := &chatv1.GenerateResponse{}
		switch m := m.(type) {
		case *llmv1.Started:
			out.Message = &chatv1.GenerateResponse_Started{Started: m}
		case *chatv1.Delta:
			out.Message = &chatv1.GenerateResponse_Delta{Delta: m}
		case *chatv1.Restarted:
			out.Message = &chatv1.GenerateResponse_Restarted{Restarted: m}
		case *chatv1.ChoiceEnd:
			out.Message = &chatv1.GenerateResponse_ChoiceEnd{ChoiceEnd: m}
		case *llmv1.End:
			out.Message = &chatv1.GenerateResponse_End{End: m}
		}
		all = append(all, out)
	}
	return all
}

// whole returns the answer to a request in one body.
func whole(t *testing.T, body string, parse func([]byte, *strict.Reading) (*openai.Chat, error), stream ...*chatv1.GenerateResponse) (answer []byte) {
	t.Helper()
	for _, data := range written(t, body, parse, false, stream...) {
		answer = append(answer, data...)
	}
	return answer
}

// lines collects data lines.
type lines struct{ all []string }

func (l *lines) Begin() []byte            { return nil }
func (l *lines) BeginEvent(string) []byte { return nil }
func (l *lines) End(line []byte)          { l.all = append(l.all, string(line)) }

func written(t *testing.T, body string, parse func([]byte, *strict.Reading) (*openai.Chat, error), events bool, stream ...*chatv1.GenerateResponse) (all []string) {
	t.Helper()
	c, err := parse([]byte(body), nil)
	if err != nil {
		t.Fatal(err)
	}
	if events {
		lines, write := &lines{}, c.Call().Events()
		for _, out := range stream {
			write(out, lines)
		}
		return lines.all
	}
	gather := c.Call().Whole()
	for _, out := range stream {
		if body := gather(out); body != nil {
			all = append(all, string(body))
		}
	}
	return all
}

func token(text string, likely float32, top ...*chatv1.TokenLogprob) *chatv1.TokenLogprob {
	return &chatv1.TokenLogprob{Token: strings.ToValidUTF8(text, "\uFFFD"), Bytes: []byte(text), Logprob: likely, Top: top}
}

// several returns a stream of two choices, each of two tokens.
func several() []*chatv1.GenerateResponse {
	return items(started,
		&chatv1.Delta{Choice: 1, Text: "né", Logprobs: []*chatv1.TokenLogprob{token("n", -1, token("n", -1), token("x", -2)), token("\xc3", -0.5)}},
		&chatv1.Delta{Choice: 0, Text: "a", Logprobs: []*chatv1.TokenLogprob{token("a", -3, token("b", -1))}},
		&chatv1.Delta{Choice: 1, Text: "!", Logprobs: []*chatv1.TokenLogprob{token("\xa9", -0.25), token("!", 0)}},
		&chatv1.ChoiceEnd{Choice: 1, Finish: llmv1.Finish_FINISH_STOP}, &chatv1.ChoiceEnd{Choice: 0, Finish: llmv1.Finish_FINISH_LENGTH},
		&llmv1.End{Usage: &llmv1.Usage{PromptTokens: 3, CompletionTokens: 5, CachedTokens: new(uint32(0))}})
}

// TestEchoedPromptBeginsWithoutLogprob: nothing stands before its first token.
func TestEchoedPromptBeginsWithoutLogprob(t *testing.T) {
	const body = `{"model":"m","prompt":"an","logprobs":1,"echo":true,"max_tokens":0}`
	first := token("a", 0)
	first.Unscored = true
	stream := items(started, &chatv1.Delta{Text: "an", Logprobs: []*chatv1.TokenLogprob{first, token("n", -1, token("x", -0.5))}}, &llmv1.End{Finish: llmv1.Finish_FINISH_LENGTH, Usage: &llmv1.Usage{PromptTokens: 2}})
	const want = `"logprobs":{"tokens":["a","n"],"token_logprobs":[null,-1],"top_logprobs":[null,{"n":-1,"x":-0.5}],"text_offset":[0,1]}`
	if got := string(whole(t, body, openai.ParseCompletion, stream...)); !strings.Contains(got, want) {
		t.Error(got)
	}
	if got := strings.Join(written(t, strings.Replace(body, "{", `{"stream":true,`, 1), openai.ParseCompletion, true, stream...), "\n"); !strings.Contains(got, want) {
		t.Error(got)
	}
	if _, err := openai.ParseCompletion([]byte(`{"model":"m","prompt":"a","max_tokens":0}`), nil); err == nil {
		t.Error("an answer of no tokens without an echo is accepted")
	}
}

func created(t *testing.T, data string) string {
	t.Helper()
	before, rest, _ := strings.Cut(data, `"created":`)
	_, rest, ok := strings.Cut(rest, ",")
	if !ok {
		t.Errorf("%s lacks the time of its creation", data)
	}
	return before + rest
}

func TestChoicesAndLogprobsOfChats(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"x"}],"n":2,"logprobs":true,"top_logprobs":2}`
	got := created(t, string(whole(t, body, openai.ParseChat, several()...)))
	want := `{"id":"chatcmpl-str-1","object":"chat.completion","model":"m","choices":[` +
		`{"index":0,"message":{"role":"assistant","content":"a","refusal":null},"logprobs":{"content":[{"token":"a","logprob":-3,"bytes":[97],"top_logprobs":[{"token":"b","logprob":-1,"bytes":[98]}]}],"refusal":null},"finish_reason":"length"},` +
		`{"index":1,"message":{"role":"assistant","content":"né!","refusal":null},"logprobs":{"content":[` +
		`{"token":"n","logprob":-1,"bytes":[110],"top_logprobs":[{"token":"n","logprob":-1,"bytes":[110]},{"token":"x","logprob":-2,"bytes":[120]}]},` +
		`{"token":"�","logprob":-0.5,"bytes":[195],"top_logprobs":[]},{"token":"�","logprob":-0.25,"bytes":[169],"top_logprobs":[]},{"token":"!","logprob":0,"bytes":[33],"top_logprobs":[]}],"refusal":null},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":0}}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	events := written(t, body, openai.ParseChat, true, several()...)
	if len(events) != 6 || events[5] != "[DONE]" {
		t.Fatal(events)
	}
	for i, part := range []string{
		`"choices":[{"index":1,"delta":{"role":"assistant","content":"né"},"logprobs":{"content":[{"token":"n"`, `"choices":[{"index":0,"delta":{"role":"assistant","content":"a"}`, `{"index":1,"delta":{"content":"!"}`, `{"index":1,"delta":{},"logprobs":null,"finish_reason":"stop"}`, `{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}`,
	} {
		if !strings.Contains(events[i], part) || !json.Valid([]byte(events[i])) {
			t.Errorf("event %d is %s, without %s", i, events[i], part)
		}
	}
}

func TestTextCompletions(t *testing.T) {
	const body = `{"model":"m","prompt":["a","b"],"logprobs":2}`
	got := created(t, string(whole(t, body, openai.ParseCompletion, several()...)))
	want := `{"id":"cmpl-str-1","object":"text_completion","model":"m","choices":[` +
		`{"text":"a","index":0,"logprobs":{"tokens":["a"],"token_logprobs":[-3],"top_logprobs":[{"a":-3,"b":-1}],"text_offset":[0]},"finish_reason":"length"},` +
		`{"text":"né!","index":1,"logprobs":{"tokens":["n","�","�","!"],"token_logprobs":[-1,-0.5,-0.25,0],"top_logprobs":[{"n":-1,"x":-2},{"�":-0.5},{"�":-0.25},{"!":0}],"text_offset":[0,1,1,2]},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":0}}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	events := written(t, body, openai.ParseCompletion, true, several()...)
	if len(events) != 6 || events[5] != "[DONE]" {
		t.Fatal(events)
	}
	for i, part := range []string{
		`"choices":[{"text":"né","index":1,"logprobs":{"tokens":["n","�"]`, `{"text":"a","index":0`, `{"text":"!","index":1,"logprobs":{"tokens":["�","!"],"token_logprobs":[-0.25,0],"top_logprobs":[{"�":-0.25},{"!":0}],"text_offset":[1,2]},"finish_reason":null}`,
		`{"text":"","index":1,"logprobs":null,"finish_reason":"stop"}`, `{"text":"","index":0,"logprobs":null,"finish_reason":"length"}`,
	} {
		if !strings.Contains(events[i], part) || !strings.Contains(events[i], `"object":"text_completion"`) || !json.Valid([]byte(events[i])) {
			t.Errorf("event %d is %s, without %s", i, events[i], part)
		}
	}
	one := written(t, `{"model":"m","prompt":"a","stream":true,"stream_options":{"include_usage":true}}`, openai.ParseCompletion, true, items(started, &chatv1.Delta{Text: "x"}, ended)...)
	if len(one) != 4 || !strings.Contains(one[1], `"finish_reason":"length"`) || !strings.Contains(one[2], `"choices":[],"usage":{`) || !strings.Contains(one[0], `"usage":null`) {
		t.Error(one)
	}
}

func TestPromptsInAllForms(t *testing.T) {
	ids := func(ids ...uint32) *chatv1.Prompt {
		return &chatv1.Prompt{Content: &chatv1.Prompt_Ids{Ids: &chatv1.TokenIDs{Ids: ids}}}
	}
	text := func(s string) *chatv1.Prompt {
		return &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: s}}
	}
	for form, want := range map[string][]*chatv1.Prompt{
		`"a"`: {text("a")}, `["a","b"]`: {text("a"), text("b")}, `[1,2]`: {ids(1, 2)}, `[[1],[2,3]]`: {ids(1), ids(2, 3)}, `""`: {text("")},
	} {
		c, err := openai.ParseCompletion([]byte(`{"model":"m","prompt":`+form+`,"n":2,"best_of":2,"echo":true,"suffix":"","user":"u","skip_special_tokens":false,"include_stop_str_in_output":true,"spaces_between_special_tokens":true}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		expect := &chatv1.ChatRequest{Model: "m", Prompts: want, N: 2, Echo: true, KeepSpecial: true, IncludeStop: true, Session: "u", Sampling: &llmv1.Sampling{MaxTokens: new(uint32(16))}}
		if !proto.Equal(c.Request, expect) {
			t.Errorf("%s\n got %v\nwant %v", form, c.Request, expect)
		}
		if c.Param("prompt[1]") != "prompt[1]" || c.Param("prompt") != "prompt" {
			t.Error(c.Param("prompt"))
		}
	}
}

func TestBadCompletionsAreRefusedByName(t *testing.T) {
	many := strings.Repeat(`"",`, 64) + `""`
	for more, want := range map[string]struct{ param, message string }{
		`,"prompt":[` + many + `]`:                {"prompt", "has 65 prompts; at most 64"},
		`,"prompt": [ 1 , true ]`:                 {"prompt[1]", "must be an integer"},
		``:                                        {"prompt", "missing"},
		`,"prompt":[]`:                            {"prompt", "missing or empty"},
		`,"prompt":5`:                             {"prompt", "array of token ids"},
		`,"prompt":{}`:                            {"prompt", "array of token ids"},
		`,"prompt":["a",5]`:                       {"prompt[1]", "must be a string"},
		`,"prompt":[1,"a"]`:                       {"prompt[1]", "must be an integer"},
		`,"prompt":[1,-1]`:                        {"prompt[1]", "is -1"},
		`,"prompt":[1,1.5]`:                       {"prompt[1]", "must be an integer"},
		`,"prompt":[1,null]`:                      {"prompt[1]", "got null"},
		`,"prompt":[null]`:                        {"prompt[0]", "got null"},
		`,"prompt":[4294967295]`:                  {"prompt[0]", "is 4294967295"},
		`,"prompt":[[1],"a"]`:                     {"prompt[1]", "must be an array"},
		`,"prompt":[[1],[true]]`:                  {"prompt[1][0]", "must be an integer"},
		`,"prompt":"a","suffix":"b"`:              {"suffix", "not supported"},
		`,"prompt":"a","best_of":3`:               {"best_of", "not supported"},
		`,"prompt":"a","best_of":2,"n":3`:         {"best_of", "at least n"},
		`,"prompt":"a","logprobs":true`:           {"logprobs", "must be an integer"},
		`,"prompt":"a","logprobs":21`:             {"logprobs", "from 0 to 20"},
		`,"prompt":"a","echo":1`:                  {"echo", "must be a boolean"},
		`,"prompt":"a","messages":[1]`:            {"messages", "unknown field"},
		`,"prompt":"a","max_completion_tokens":1`: {"max_completion_tokens", "unknown field"},
		`,"prompt":"a","logit_bias":{"x":1}`:      {"logit_bias", `"x"`},
		`,"prompt":"a","max_tokens":0`:            {"max_tokens", "is 0"},
		`,"prompt":"a","stream_options":{"include_usage":true}`: {"stream_options", "when stream is true"},
	} {
		_, err := openai.ParseCompletion([]byte(`{"model":"m"`+more+`}`), &strict.Reading{Strict: true})
		if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != want.param || !strings.Contains(e.Message, want.message) {
			t.Errorf("%s: %v (param %q)", more, err, e.Param)
		}
	}
}

func TestLogprobsOfChats(t *testing.T) {
	for more, want := range map[string]*uint32{
		``: nil, `,"logprobs":false`: nil, `,"logprobs":true`: new(uint32(0)), `,"logprobs":true,"top_logprobs":5`: new(uint32(5)), `,"top_logprobs":0`: nil,
	} {
		c, err := openai.ParseChat([]byte(`{"model":"m","messages":[{"role":"user","content":"x"}]`+more+`}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Request.GetSampling().Logprobs; (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: %v", more, got)
		}
	}
}

func FuzzParseStream(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":[[1,2],[3]],"n":2}`))
	f.Add([]byte(`{"model":"m","prompt":["a"],"echo":true}`))
	f.Add([]byte(`{"model":"m","prompt":null,"messages":[{"role":"user","content":"x"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := openai.ParseStream(body, nil)
		if err != nil {
			if e := streamerr.As(err); e.Reason != streamerr.Invalid || e.Text() == "" {
				t.Error(err)
			}
			return
		}
		if _, err := proto.Marshal(c.Request); err != nil || (len(c.Request.GetMessages()) == 0) == (len(c.Request.GetPrompts()) == 0) {
			t.Error(c.Request, err)
		}
	})
}

func TestWholeAnswerLacksTheTextBeforeARestart(t *testing.T) {
	tokens := []*chatv1.TokenLogprob{token("lost", -1)}
	again := items(started,
		&chatv1.Delta{Choice: 0, Text: "lost", Reasoning: "lost", ToolCalls: []*chatv1.ToolCallDelta{{Id: "1", Name: "lost"}}, Logprobs: tokens},
		&chatv1.Delta{Choice: 1, Text: "kept"}, &chatv1.ChoiceEnd{Choice: 0, Finish: llmv1.Finish_FINISH_LENGTH},
		&chatv1.Restarted{Choice: 0}, &chatv1.Delta{Choice: 0, Text: "new"},
		&chatv1.ChoiceEnd{Choice: 0, Finish: llmv1.Finish_FINISH_STOP}, &chatv1.ChoiceEnd{Choice: 1, Finish: llmv1.Finish_FINISH_STOP},
		&llmv1.End{Usage: &llmv1.Usage{PromptTokens: 3, CompletionTokens: 2}})
	for body, parse := range map[string]func([]byte, *strict.Reading) (*openai.Chat, error){
		`{"model":"m","messages":[{"role":"user","content":"x"}],"n":2}`: openai.ParseChat,
		`{"model":"m","prompt":"x","n":2}`:                               openai.ParseCompletion,
	} {
		got := string(whole(t, body, parse, again...))
		if strings.Contains(got, "lost") || strings.Contains(got, "length") || !strings.Contains(got, `"new"`) || !strings.Contains(got, `"kept"`) {
			t.Error(got)
		}
	}
}
