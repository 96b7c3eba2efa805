package prompt

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestConversationThatTheTemplateFailsOnIsRefused(t *testing.T) {
	for source, want := range map[string]string{
		"{{ messages[1].content.x }}":                                "list object has no such element",
		"{{ messages[0].content + messages[0].name }}":               "'dict object' has no attribute 'name'",
		"{% for call in messages[0].content | length %}{% endfor %}": "int is not iterable",
		"{{ 'x' in (messages | length) }}":                           "int is not iterable",
		"{{ messages.strip() }}":                                     "'list object' has no attribute 'strip'",
		"{{ messages[0].nope | tojson }}":                            "Undefined has no JSON",
	} {
		template, err := New(source, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = template.Render(t.Context(), Input{Messages: user("secret")})
		e, ok := errors.AsType[*streamerr.Error](err)
		if !ok || e.Reason != streamerr.Invalid || e.Param != "messages" || !strings.Contains(e.Message, ": "+want+"; leave the turn out") {
			t.Errorf("%s: got %v, want %q", source, err, want)
		}
	}
}

// FuzzOddConversations renders odd conversations with every template. Each must give a text or be
// refused. The lines of the input are messages, "role: content".
func FuzzOddConversations(f *testing.F) {
	for _, text := range []string{
		"", "user: x", "user:", "system: a\nsystem: b", "assistant: first", "tool: x", "developer: x\nuser: y\nuser: z", "user: a\nassistant: b", "system:",
		"user: {{ x }}{% endfor %}\nassistant: <think>\nassistant: </think>a</think>", "robot: x", "user: \x00", "user: \xff", "\xff: x", "user: \U0001f642\u200d",
	} {
		f.Add(text, true)
	}
	all := templates(f)
	f.Fuzz(func(t *testing.T, text string, prompted bool) {
		var messages []*chatv1.Message
		for line := range strings.SplitSeq(text, "\n") {
			role, content, _ := strings.Cut(line, ": ")
			name, content, named := strings.Cut(content, "=")
			if !named {
				name, content = "", name
			}
			messages = append(messages, &chatv1.Message{Role: role, Content: content, Name: name})
		}
		for name, template := range all {
			got, err := template.Render(t.Context(), Input{Messages: messages, AddGenerationPrompt: prompted})
			switch {
			case err == nil && !utf8.ValidString(got):
				t.Errorf("%s made %q of %q", name, got, text)
			case err != nil && !errors.Is(err, streamerr.Invalid):
				t.Errorf("%s: %q: %v", name, text, err)
			}
		}
	})
}
