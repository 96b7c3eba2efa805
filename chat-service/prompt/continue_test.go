package prompt

import (
	"context"
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestAnswerContinuesTheLastMessage(t *testing.T) {
	const head, turns = "{% for m in messages %}<|im_start|>{{ m.role }}\n", "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
	for _, c := range []struct{ content, message, want string }{
		{"{{ m.content }}", "The fox ", "The fox "},
		{"{{ m.content | trim }}", "The fox \n", "The fox"},
		{"{{ m.content }}", "", ""},
		{"<think>\n\n</think>\n\n{{ m.content.split('</think>')[-1].lstrip() }}", "The fox", "<think>\n\n</think>\n\nThe fox"},
	} {
		template, err := New(head+c.content+turns, nil)
		if err != nil {
			t.Fatal(err)
		}
		render := Renderer(template.Render)
		got, err := render.Prompt(t.Context(), Input{Messages: []*chatv1.Message{{Role: "assistant", Content: c.message}}, AddGenerationPrompt: true, Continue: true})
		if want := "<|im_start|>assistant\n" + c.want; got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", c.content, got, err, want)
		}
		calls := []*chatv1.Message{{Role: "assistant", ToolCalls: []*chatv1.ToolCall{{Name: "f", Arguments: "{}"}}}}
		if _, err := render.Prompt(t.Context(), Input{Messages: calls, Continue: true}); err == nil || streamerr.As(err).Param != "messages" {
			t.Errorf("%s: calls are continued: %v", c.content, err)
		}
	}
	silent := Renderer(func(_ context.Context, _ Input) (string, error) { return "no messages", nil })
	if _, err := silent.Prompt(t.Context(), Input{Messages: []*chatv1.Message{{Role: "assistant", Content: "a"}}, Continue: true}); err == nil || streamerr.As(err).Reason != streamerr.Invalid {
		t.Errorf("a message that is not in the prompt is continued: %v", err)
	}
}
