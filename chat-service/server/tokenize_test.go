package server

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/chat-service/models"
	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func tiny(t *testing.T) *Server {
	t.Helper()
	registry := models.New("chat-service", slog.New(slog.DiscardHandler), func(bool) {})
	t.Cleanup(registry.Close)
	if err := registry.Set([]models.Card{{Workers: "127.0.0.1:1"}}); err != nil {
		t.Fatal(err)
	}
	return New(&rpc.Hop{Name: "chat-service"}, registry, nil, nil)
}

func TestTokenizeAndDetokenizeRoundTrip(t *testing.T) {
	s := tiny(t)
	for _, text := range []string{"", "The quick brown fox.", "안녕 👩‍💻", "<|im_start|>user"} {
		ids, err := s.Tokenize(t.Context(), &chatv1.TokenizeRequest{Text: text, Strings: true})
		if err != nil || len(ids.GetStrings()) != len(ids.GetIds()) || ids.GetContextLength() != 1024 {
			t.Fatal(ids, err)
		}
		if back, err := s.Detokenize(t.Context(), &chatv1.DetokenizeRequest{Model: whencetiny.Name, Ids: ids.GetIds()}); err != nil || back.GetText() != text {
			t.Errorf("%q became %q, %v", text, back.GetText(), err)
		}
		if !strings.ContainsRune(strings.Join(ids.GetStrings(), ""), '\uFFFD') && strings.Join(ids.GetStrings(), "") != text {
			t.Errorf("%q is spelled %q", text, ids.GetStrings())
		}
	}
}

func TestNULIsTokenizedAsInPrompts(t *testing.T) {
	s := tiny(t)
	got, err := s.Tokenize(t.Context(), &chatv1.TokenizeRequest{Text: "a\x00b"})
	m, _ := s.models.Model("")
	if want := m.Tokenizer.Encode("a\uFFFDb", false); err != nil || !slices.Equal(got.GetIds(), want) {
		t.Error(got, err)
	}
}

func TestConversationIsTokenizedAsForTheModel(t *testing.T) {
	s := tiny(t)
	messages := []*chatv1.Message{{Role: "user", Content: "hi"}}
	got, err := s.Tokenize(t.Context(), &chatv1.TokenizeRequest{Messages: messages, AddGenerationPrompt: true})
	m, _ := s.models.Model("")
	if want := m.Tokenizer.Encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", false); err != nil || !slices.Equal(got.GetIds(), want) {
		t.Error(got, err)
	}
	messages = append(messages, &chatv1.Message{Role: "assistant", Content: "The fox"})
	got, err = s.Tokenize(t.Context(), &chatv1.TokenizeRequest{Messages: messages, ContinueMessage: true})
	if want := m.Tokenizer.Encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nThe fox", false); err != nil || !slices.Equal(got.GetIds(), want) {
		t.Error(got, err)
	}
}

// TestToolsOfAConversationAreTokenized compares a prompt with tools to the rendered template with
// tools.
func TestToolsOfAConversationAreTokenized(t *testing.T) {
	s := tiny(t)
	req := &chatv1.TokenizeRequest{
		Messages: []*chatv1.Message{{Role: "user", Content: "hi"}}, AddGenerationPrompt: true,
		Tools: []*chatv1.Tool{{Name: "get_weather", Description: "the weather", Parameters: `{"type":"object"}`}},
	}
	m, _ := s.models.Model("")
	text, err := m.Render(t.Context(), prompt.Input{Messages: req.GetMessages(), AddGenerationPrompt: true, Tools: req.GetTools()})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Tokenize(t.Context(), req); err != nil || !slices.Equal(got.GetIds(), m.Tokenizer.Encode(text, false)) || !strings.Contains(text, "get_weather") {
		t.Error(text, got, err)
	}
	without, err := s.Tokenize(t.Context(), &chatv1.TokenizeRequest{Messages: req.GetMessages(), AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	req.ToolChoice = &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_NONE}
	if got, err := s.Tokenize(t.Context(), req); err != nil || !slices.Equal(got.GetIds(), without.GetIds()) {
		t.Errorf("tools that the model must not call: %v, %v", got, err)
	}
}

func TestInvalidTokenizeRequestsAreRefusedByName(t *testing.T) {
	s := tiny(t)
	for _, c := range []struct {
		req    *chatv1.TokenizeRequest
		reason streamerr.Reason
		param  string
	}{
		{&chatv1.TokenizeRequest{Model: "no"}, streamerr.NotFound, "model"},
		{&chatv1.TokenizeRequest{Text: "x", Messages: []*chatv1.Message{{Role: "user"}}}, streamerr.Invalid, "prompt"},
		{&chatv1.TokenizeRequest{Messages: []*chatv1.Message{{Role: "robot"}}}, streamerr.Invalid, "messages[0].role"},
		{&chatv1.TokenizeRequest{Text: "\xff"}, streamerr.Invalid, "prompt"},
		{&chatv1.TokenizeRequest{Messages: []*chatv1.Message{{Role: "user"}}, ToolChoice: &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED}}, streamerr.Invalid, "tool_choice"},
	} {
		_, err := s.Tokenize(t.Context(), c.req)
		if e := streamerr.As(err); err == nil || e.Reason != c.reason || e.Param != c.param || e.Path.String() != "chat-service" {
			t.Errorf("%v: %v", c.req, err)
		}
	}
	_, err := s.Detokenize(t.Context(), &chatv1.DetokenizeRequest{Ids: []uint32{1, 1 << 31}})
	if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != "tokens[1]" {
		t.Error(err)
	}
}
