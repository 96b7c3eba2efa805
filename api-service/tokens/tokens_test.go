package tokens_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/api-service/tokens"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestTokenizeRequestsAreParsed(t *testing.T) {
	hi := []*chatv1.Message{{Role: "user", Content: "hi"}}
	for body, want := range map[string]*chatv1.TokenizeRequest{
		`{"prompt":"x"}`: {Text: "x", AddSpecial: true},
		`{"model":"m","prompt":"","add_special_tokens":false,"return_token_strs":true}`:                                                        {Model: "m", Strings: true},
		`{"messages":[{"role":"user","content":"hi"}]}`:                                                                                        {Messages: hi, AddGenerationPrompt: true},
		`{"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":false,"add_special_tokens":true,"continue_final_message":false}`: {Messages: hi, AddSpecial: true},
		`{"messages":[{"role":"user","content":"hi"}],"temperature":0,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none","chat_template_kwargs":{"a":1},"continue_final_message":true}`: {
			Messages: hi, Tools: []*chatv1.Tool{{Name: "f"}}, ToolChoice: &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_NONE}, TemplateVariables: `{"a":1}`, ContinueMessage: true,
		},
	} {
		if got, err := tokens.ParseTokenize([]byte(body), nil); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
	if got, err := tokens.ParseDetokenize([]byte(`{"model":"m","tokens":[1,2]}`), nil); err != nil || !proto.Equal(got, &chatv1.DetokenizeRequest{Model: "m", Ids: []uint32{1, 2}}) {
		t.Error(got, err)
	}
	if got, err := tokens.ParseDetokenize([]byte(`{"tokens":[]}`), nil); err != nil || len(got.GetIds()) != 0 {
		t.Error(got, err)
	}
}

func TestBadBodiesAreRefusedByName(t *testing.T) {
	for body, param := range map[string]string{
		``: "", `[]`: "", `{}`: "prompt", `{"prompt":5}`: "prompt", `{"prompt":"x","messages":[{"role":"user","content":"x"}]}`: "prompt",
		`{"messages":[]}`: "prompt", `{"messages":[{"role":"robot","content":"x"}]}`: "messages[0].role", `{"prompt":"x","add_special_tokens":1}`: "add_special_tokens",
		`{"prompt":"x","tokens":[1]}`: "tokens", `{"prompt":"x","continue_final_message":true}`: "continue_final_message", `{"prompt":"x","model":1}`: "model",
	} {
		if _, err := tokens.ParseTokenize([]byte(body), &strict.Reading{Strict: true}); err == nil || streamerr.As(err).Reason != streamerr.Invalid || streamerr.As(err).Param != param {
			t.Errorf("%s: %v", body, err)
		}
	}
	for body, param := range map[string]string{`{}`: "tokens", `{"tokens":"x"}`: "tokens", `{"tokens":[1,"x"]}`: "tokens[1]", `{"tokens":[-1]}`: "tokens[0]", `{"prompt":"x"}`: "prompt"} {
		if _, err := tokens.ParseDetokenize([]byte(body), &strict.Reading{Strict: true}); err == nil || streamerr.As(err).Param != param {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestAnswersHaveTheFormOfVLLM(t *testing.T) {
	if got := string(tokens.Tokenized(&chatv1.TokenizeResponse{Ids: []uint32{5}, ContextLength: 9, Strings: []string{"<é>"}})); got != `{"count":1,"max_model_len":9,"tokens":[5],"token_strs":["\u003cé\u003e"]}` {
		t.Error(got)
	}
	if got := string(tokens.Tokenized(&chatv1.TokenizeResponse{})); !strings.Contains(got, `"tokens":[],"token_strs":null`) {
		t.Error(got)
	}
	if got := string(tokens.Detokenized(&chatv1.DetokenizeResponse{Text: "x"})); got != `{"prompt":"x"}` {
		t.Error(got)
	}
}
