package openai_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// withIDs returns a stream of one or two choices, whose deltas have ids.
func withIDs(choices int) []*chatv1.GenerateResponse {
	begin := &llmv1.Started{StreamId: "str-1", Model: "m"}
	all := []proto.Message{begin}
	for i := range choices {
		begin.Prompts = append(begin.Prompts, &llmv1.PromptTokens{Ids: []uint32{uint32(10 * i), 1}})
		all = append(all, &chatv1.Delta{Choice: uint32(i), Text: "a", Ids: []uint32{7, 8}}, &chatv1.Delta{Choice: uint32(i), Text: "b", Ids: []uint32{9}})
	}
	for i := range choices {
		if choices > 1 {
			all = append(all, &chatv1.ChoiceEnd{Choice: uint32(i), Finish: llmv1.Finish_FINISH_STOP})
		}
	}
	return items(append(all, &llmv1.End{Finish: llmv1.Finish_FINISH_STOP, Usage: &llmv1.Usage{PromptTokens: 2, CompletionTokens: 3}})...)
}

func TestTokenIDsOfChats(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"x"}],"return_token_ids":true}`
	c, err := openai.ParseChat([]byte(body), nil)
	if err != nil || !c.Request.GetTellIds() || !c.Request.GetTellPrompts() {
		t.Fatal(err, c)
	}
	got := string(whole(t, body, openai.ParseChat, withIDs(1)...))
	if !strings.Contains(got, `"finish_reason":"stop","token_ids":[7,8,9]}]`) || !strings.HasSuffix(got, `"prompt_token_ids":[0,1]}`) {
		t.Error(got)
	}
	events := written(t, body, openai.ParseChat, true, withIDs(1)...)
	for i, part := range []string{`"finish_reason":null,"token_ids":[7,8]}],"prompt_token_ids":[0,1]}`, `"finish_reason":null,"token_ids":[9]}]}`, `"finish_reason":"stop"}]}`, `[DONE]`} {
		if !strings.HasSuffix(events[i], part) {
			t.Errorf("event %d is %s, without %s", i, events[i], part)
		}
	}
}

func TestTokenIDsOfTextCompletions(t *testing.T) {
	const body = `{"model":"m","prompt":["a","b"],"return_token_ids":true}`
	got := string(whole(t, body, openai.ParseCompletion, withIDs(2)...))
	if !strings.Contains(got, `"prompt_token_ids":[0,1],"token_ids":[7,8,9]}`) || !strings.Contains(got, `"prompt_token_ids":[10,1],"token_ids":[7,8,9]}`) {
		t.Error(got)
	}
	events := written(t, body, openai.ParseCompletion, true, withIDs(2)...)
	for i, part := range []string{
		`"token_ids":[7,8],"prompt_token_ids":[0,1]}]}`, `"token_ids":[9]}]}`, `"token_ids":[7,8],"prompt_token_ids":[10,1]}]}`, `"token_ids":[9]}]}`,
	} {
		if !strings.HasSuffix(events[i], part) {
			t.Errorf("event %d is %s, without %s", i, events[i], part)
		}
	}
}

// The token that ended an answer is the last of its ids, unless each id has a log-probability.
func TestTokenIDsHaveTheTokenThatEndedTheAnswer(t *testing.T) {
	answer := func() []*chatv1.GenerateResponse {
		return items(started, &chatv1.Delta{Text: "a", Ids: []uint32{7}}, &llmv1.End{Finish: llmv1.Finish_FINISH_STOP, MatchedToken: new(uint32(2))})
	}
	for path, parse := range map[string]func([]byte, *strict.Reading) (*openai.Chat, error){`"messages":[{"role":"user","content":"x"}]`: openai.ParseChat, `"prompt":"x"`: openai.ParseCompletion} {
		for fields, want := range map[string]string{`,"return_token_ids":true`: `"token_ids":[7,2]`, `,"return_token_ids":true,"logprobs":LIKELY`: `"token_ids":[7]`} {
			likely := "1"
			if strings.HasPrefix(path, `"messages`) {
				likely = "true"
			}
			body := `{"model":"m",` + path + strings.ReplaceAll(fields, "LIKELY", likely) + `}`
			if got := string(whole(t, body, parse, answer()...)); !strings.Contains(got, want) {
				t.Errorf("%s: %s, without %s", body, got, want)
			}
			events := strings.Join(written(t, body, parse, true, answer()...), "\n")
			if streamed := strings.Contains(events, `"finish_reason":"stop","token_ids":[2]`); streamed != (fields == `,"return_token_ids":true`) {
				t.Errorf("%s: %s", body, events)
			}
		}
	}
}

func TestTokensOfLogprobsAreNamedByTheirIDsOnRequest(t *testing.T) {
	const body = `{"model":"m","prompt":"a","logprobs":1,"return_tokens_as_token_ids":true}`
	likely := token("a", -3, &chatv1.TokenLogprob{Id: 5, Token: "b", Logprob: -1})
	likely.Id = 7
	got := string(whole(t, body, openai.ParseCompletion, items(started, &chatv1.Delta{Text: "a", Logprobs: []*chatv1.TokenLogprob{likely}}, &llmv1.End{})...))
	if !strings.Contains(got, `"tokens":["token_id:7"],"token_logprobs":[-3],"top_logprobs":[{"token_id:5":-1,"token_id:7":-3}]`) {
		t.Error(got)
	}
}

func TestKeptStreamsRefuseTokenIDs(t *testing.T) {
	_, err := openai.ParseStream([]byte(`{"model":"m","prompt":"a","return_token_ids":true}`), nil)
	if err == nil || !strings.Contains(err.Error(), "return_token_ids") {
		t.Error(err)
	}
}
