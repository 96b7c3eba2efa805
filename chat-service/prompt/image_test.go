package prompt

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// vision writes contents like the templates of models with images.
const vision = `{% for m in messages %}<|im_start|>{{ m['role'] }}
{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}` +
	`{% if c['type'] == 'image' or 'image' in c or 'image_url' in c %}<|vision_start|><|image_pad|><|vision_end|>` +
	`{% elif 'text' in c %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

func placed(offsets ...uint32) (all []*chatv1.PlacedImage) {
	for _, at := range offsets {
		all = append(all, &chatv1.PlacedImage{Image: &llmv1.Image{}, Offset: at})
	}
	return all
}

func seen(content string, offsets ...uint32) []*chatv1.Message {
	return []*chatv1.Message{{Role: "developer", Content: "Be kind."}, {Role: "user", Content: content, Images: placed(offsets...)}}
}

func TestImagesHaveTheirPlacesInThePrompt(t *testing.T) {
	template, err := New(vision, nil)
	if err != nil {
		t.Fatal(err)
	}
	const image = "<|vision_start|><|image_pad|><|vision_end|>"
	for want, messages := range map[string][]*chatv1.Message{
		image:                             seen("", 0),
		image + "äb":                      seen("äb", 0),
		"ä" + image + "b":                 seen("äb", 2),
		"äb" + image + image:              seen("äb", 3, 3),
		image + "ä" + image + "b" + image: seen("äb", 0, 2, 3),
		"äb":                              seen("äb"),
	} {
		got, err := template.Render(t.Context(), Input{Messages: messages, AddGenerationPrompt: true})
		if want = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n" + want + "<|im_end|>\n<|im_start|>assistant\n"; got != want || err != nil {
			t.Errorf("got  %q, %v\nwant %q", got, err, want)
		}
	}
	called := []*chatv1.Message{
		{Role: "user", Content: "Look."}, {Role: "assistant", ToolCalls: []*chatv1.ToolCall{{Id: "a", Name: "f", Arguments: "{}"}, {Id: "b", Name: "f", Arguments: "{}"}}},
		{Role: "tool", Content: "äb", Images: placed(2, 3)}, {Role: "tool", Content: "c", Images: placed(0)},
	}
	got, err := template.Render(t.Context(), Input{Messages: called})
	if want := "<tool_response>\nä" + image + "b" + image + "\n</tool_response>\n<tool_response>\n" + image + "c\n</tool_response>"; !strings.Contains(got, want) || err != nil {
		t.Errorf("got %q, %v, without %q", got, err, want)
	}
	for param, messages := range map[string][]*chatv1.Message{
		"messages[1].images[0]": seen("äb", 1), // within a character
		"messages[1].images[1]": seen("äb", 3, 2),
		"messages[0].images[0]": {{Role: "user", Content: "a", Images: placed(2)}},
		"messages[2].images[0]": append(seen("a"), &chatv1.Message{Role: "user", Images: []*chatv1.PlacedImage{{}}}),
	} {
		_, err := template.Render(t.Context(), Input{Messages: messages})
		if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != param {
			t.Errorf("%v, want %s refused", err, param)
		}
	}
}

func TestTemplateWithoutAPlaceForImagesRefusesThem(t *testing.T) {
	template, err := New("{% for m in messages %}{{ m.content }}{% endfor %}", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = template.Render(t.Context(), Input{Messages: seen("a", 0)})
	if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != "messages" {
		t.Error(err)
	}
	if got, err := template.Render(t.Context(), Input{Messages: seen("a")}); got != "Be kind.a" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestConversationMatchesTheTemplateInput(t *testing.T) {
	in := Input{Messages: append(asked(), seen("äb", 2)...), Tools: []*chatv1.Tool{{Name: "f", Parameters: `{"type":"object"}`}}, Variables: `{"enable_thinking":false}`}
	const last = `{"role":"system","content":"Be kind."},{"role":"user","content":[{"type":"text","text":"ä"},{"type":"image"},{"type":"text","text":"b"}]}]`
	for source, want := range map[string]string{
		"{{ tools }}{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{{ c.text or '<image>' }}{% endfor %}{% endif %}{{ m.tool_calls }}{% endfor %}": `{"messages":[{"role":"user","content":"Rain?"},{"role":"assistant","content":"","reasoning":"Let me see.","reasoning_content":"Let me see.",` +
			`"tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\"z\": \"Oslo\", \"a\": 1}"}}]},` +
			`{"role":"tool","content":"no","tool_call_id":"call_1"},` + last +
			`,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"chat_template_kwargs":{"enable_thinking":false}}`,
		// A template without tools gets them as text, and so does an engine that renders the
		// conversation.
		vision: `{"messages":[{"role":"system","content":"` + "You may call functions. They are, one a line:\\n<tools>\\n{\\\"name\\\": \\\"f\\\", \\\"parameters\\\": {\\\"type\\\":\\\"object\\\"}}\\n" +
			"</tools>\\nTo call one, answer:\\n<tool_call>\\n{\\\"name\\\": \\\"…\\\", \\\"arguments\\\": {…}}\\n</tool_call>" + `"},{"role":"user","content":"Rain?"},` +
			`{"role":"assistant","content":"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"z\": \"Oslo\", \"a\": 1}}\n</tool_call>","reasoning":"Let me see.","reasoning_content":"Let me see."},` +
			`{"role":"user","content":"<tool_response>\nno\n</tool_response>"},` + last + `,"chat_template_kwargs":{"enable_thinking":false}}`,
	} {
		template, err := New(source, nil)
		if err != nil {
			t.Fatal(err)
		}
		before := proto.CloneOf(&chatv1.ChatRequest{Messages: in.Messages})
		if got, err := template.Conversation(t.Context(), in); got != want || err != nil {
			t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
		}
		if !proto.Equal(before, &chatv1.ChatRequest{Messages: in.Messages}) {
			t.Error("the messages were changed")
		}
	}
}
