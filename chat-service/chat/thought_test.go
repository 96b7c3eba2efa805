package chat_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// calling is a template with tools in the Hermes format, whose prompts end with end.
func calling(end string) string {
	return `{% if tools %}{{ tools | tojson }} <tool_call>{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
` + end
}

func TestReasoningIsSeparatedFromCalls(t *testing.T) {
	const (
		call    = "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"zone\": \" </think> \"}}\n</tool_call>"
		efforts = "{% for m in messages %}{{ m.content }}{% endfor %}<ifm|think_fast>{# <ifm|think> </ifm|think> #}"
		wrapper = "{% for m in messages %}{{ m.content }}{% endfor %}{% if thinking %}Write <think></think><response></response>{% endif %}"
	)
	for name, c := range map[string]struct {
		template string
		special  bool
		tokens   []string
		says     string
		thought  string
		text     string
		calls    string
	}{
		"after the reasoning":  {calling("<think>\n"), false, nil, "Hm.\n</think>\n\nI look.\n" + call, "Hm.", "I look.", `get_time{"zone": " </think> "}`},
		"within the reasoning": {calling("<think>\n"), false, nil, "Hm.\n" + call, "Hm.", "", `get_time{"zone": " </think> "}`},
		"and a late end":       {calling("<think>\n"), false, nil, "Hm.\n" + call + "\n</think>\n\nDone </think>", "Hm.", "Done </think>", `get_time{"zone": " </think> "}`},
		"two":                  {calling("<think>\n"), false, nil, "Hm." + call + "\n" + call, "Hm.", "", `get_time{"zone": " </think> "} get_time{"zone": " </think> "}`},
		"only mentioned":       {calling("<think>\n"), false, nil, "I could write <tool_call> or <tool_call>\n{\"name\": \"other\", \"arguments\": {}}.\n</think>\n\nNo.", "I could write <tool_call> or <tool_call>\n{\"name\": \"other\", \"arguments\": {}}.", "No.", ""},
		"cut off":              {calling("<think>\n"), false, nil, "Hm.\n<tool_call>\n{\"name\": \"get", "Hm.\n<tool_call>\n{\"name\": \"get", "", ""},
		"special tokens":       {calling("{# [THINK] #}"), true, []string{"[THINK]", "[/THINK]"}, "[THINK]17*23=391[/THINK]391" + call + "[/THINK]", "17*23=391", "391", `get_time{"zone": " </think> "}`},
		"again":                {calling(""), true, []string{"<think>", "</think>"}, "<think>a</think>b <think>c" + strings.ReplaceAll(call, "</think>", "x"), "a\n\nc", "b ", `get_time{"zone": " x "}`},
		"channels":             {calling("{# <|channel> #}"), true, []string{"<|channel>", "<channel|>"}, "<|channel>thought\nplan\n<channel|>Hi", "plan", "Hi", ""},
		"an effort":            {efforts, true, []string{"<ifm|think_fast>", "</ifm|think_fast>"}, "Hm.</ifm|think_fast>Hi", "Hm.", "Hi", ""},
		"messages of kinds": {
			"{{ messages[0].content }}{{ tools }}{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}<|content_invoke_tool_json|>{\"name\": \"{{ c.function.name }}\", \"args\": {{ c.function.arguments | tojson }}}<|end_message|>{% endfor %}{% endfor %}<|message_model|>",
			true, []string{"<|message_model|>", "<|content_thinking|>", "<|content_text|>", "<|content_invoke_tool_json|>", "<|end_message|>", "<|content_model_end_sampling|>"},
			"<|content_thinking|>plan<|end_message|><|message_model|><|content_text|>I look.<|end_message|><|message_model|>get_time<|content_invoke_tool_json|>{\"name\": \"get_time\", \"args\": {}}<|end_message|><|content_model_end_sampling|>",
			"plan", "I look.", "get_time{}",
		},
		"a wrapped answer": {wrapper, false, nil, "<think>a</think>\n<response>\nb\n</response>", "a", "b", ""},
	} {
		m := modelWith(t, c.template, c.special, c.tokens...)
		whole := m.Tokenizer.Encode(c.says, false)
		check := func(ids []uint32, step int) {
			t.Helper()
			p := &parrot{ids: ids, step: func() int { return step }, finish: llmv1.Finish_FINISH_STOP}
			req := user("x")
			if m.Markup.Calls != nil {
				req = tooled("x")
			}
			a, end, err := readWhole(t, pipeline(m, p.generate), req)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var calls []string
			for _, call := range a.Calls() {
				calls = append(calls, call.GetName()+call.GetArguments())
			}
			if got := strings.Join(calls, " "); a.Reasoning() != c.thought || a.Text() != c.text || got != c.calls {
				t.Fatalf("%s: reasoning %q, text %q, calls %q; want %q, %q, %q", name, a.Reasoning(), a.Text(), got, c.thought, c.text, c.calls)
			}
			if finish := end.GetFinish(); (finish == llmv1.Finish_FINISH_TOOL_CALLS) != (c.calls != "") {
				t.Errorf("%s: finish %v", name, finish)
			}
		}
		check(whole, len(whole))
		for at := range len(c.says) {
			if !cutsToken(c.says, at, c.tokens) {
				check(slices.Concat(m.Tokenizer.Encode(c.says[:at], false), m.Tokenizer.Encode(c.says[at:], false)), 1)
			}
		}
	}
}

// cutsToken reports whether a place of a text is within one of some tokens.
func cutsToken(text string, at int, tokens []string) bool {
	for _, token := range tokens {
		for i := max(0, at-len(token)+1); i < at; i++ {
			if strings.HasPrefix(text[i:], token) {
				return true
			}
		}
	}
	return false
}

func TestTagsOfReasoningAreTextIfItIsNotSeparated(t *testing.T) {
	m := modelWith(t, calling(""), true, "<think>", "</think>")
	p := &parrot{ids: m.Tokenizer.Encode("<think>17*23=391</think>391", false)}
	req := user("x")
	req.SeparateReasoning = proto.Bool(false)
	if a, _, err := readWhole(t, pipeline(m, p.generate), req); err != nil || a.Text() != "<think>17*23=391</think>391" {
		t.Errorf("%q, %v", a.Text(), err)
	}
}
