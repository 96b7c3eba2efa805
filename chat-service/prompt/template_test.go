package prompt

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/whence-dev/whence/chat-service/prompt/jinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func user(content string) []*chatv1.Message {
	return []*chatv1.Message{{Role: "user", Content: content}}
}

func TestBadConversationIsRefusedWithItsPlace(t *testing.T) {
	template, err := New("{{ messages[0].content }}", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name     string
		messages []*chatv1.Message
		param    string
	}{
		{"no messages", nil, "messages"},
		{"a null message", []*chatv1.Message{nil}, "messages[0]"},
		{"no role", []*chatv1.Message{{Content: "x"}}, "messages[0].role"},
		{"an unknown role", append(user("x"), &chatv1.Message{Role: "User"}), "messages[1].role"},
		{"a role that is not text", []*chatv1.Message{{Role: "\xff"}}, "messages[0].role"},
		{"content that is not UTF-8", append(user("x"), user("a\xc3")...), "messages[1].content"},
		{"an encoded surrogate", user("\xed\xa0\x80"), "messages[0].content"},
		{"a bad name", []*chatv1.Message{{Role: "user", Name: "\xff"}}, "messages[0].name"},
		{"too much", user(strings.Repeat("x", jinja.MaxOutput+1)), "messages"},
	} {
		_, err := template.Render(t.Context(), Input{Messages: tc.messages})
		e, ok := errors.AsType[*streamerr.Error](err)
		if !ok || e.Reason != streamerr.Invalid || e.Param != tc.param || e.Message == "" {
			t.Errorf("%s: got %v, want param %q", tc.name, err, tc.param)
		}
	}
}

func TestFailureOfTemplateIsInternalAndHidesThePrompt(t *testing.T) {
	for _, source := range []string{
		"{{ 'a' | nosuchfilter }}", "{{ 'a' is nosuchtest }}", "{{ messages[0].content * 99999 }}",
		"{% for i in range(9999) %}{{ messages[0].content }}{% endfor %}",
	} {
		template, err := New(source, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = template.Render(t.Context(), Input{Messages: user(strings.Repeat("secret", 1000))})
		e, ok := errors.AsType[*streamerr.Error](err)
		if !ok || e.Reason != streamerr.Internal || !strings.HasPrefix(e.Message, "chat template: ") || strings.Contains(e.Message, "secret") {
			t.Errorf("%s: got %v", source, err)
		}
	}
}

func TestDeveloperIsSystemUnlessTemplateKnowsIt(t *testing.T) {
	messages := []*chatv1.Message{{Role: "developer", Content: "x"}}
	for source, want := range map[string]string{
		"{{ messages[0].role }}":                                   "system",
		"{{ messages[0].role }} of developers":                     "system of developers",
		"{{ messages[0].role if 'developer' != 'x' }}":             "system",
		`{% if messages[0].role == "developer" %}known{% endif %}`: "known",
	} {
		template, err := New(source, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := template.Render(t.Context(), Input{Messages: messages}); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", source, got, err, want)
		}
	}
	if messages[0].GetRole() != "developer" {
		t.Error("the message itself was changed")
	}
}

func TestLoadFindsTemplateAndTokens(t *testing.T) {
	const all = `{{ bos_token }}|{{ eos_token }}|{{ unk_token is defined }}|{{ pad_token is defined }}|{{ messages[0].role }}`
	for _, tc := range []struct {
		name         string
		config, file string
		want         string
	}{
		{"a string", `{"chat_template": "{{ messages[0].role }}"}`, "", "user"},
		{"a list", `{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}`, "", "d"},
		{"a file", `{}`, "from file\n", "from file"},
		{"a file wins", `{"chat_template": "from config"}`, "from file", "from file"},
		{"a file wins over null", `{"chat_template": null}`, "from file", "from file"},
		{
			"tokens of all forms",
			`{"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "unk_token": null, "pad_token": ""}`, all,
			"<s>|</s>|False|False|user",
		},
	} {
		fsys := fstest.MapFS{configFile: {Data: []byte(tc.config)}}
		if tc.file != "" {
			fsys[templateFile] = &fstest.MapFile{Data: []byte(tc.file)}
		}
		template, err := Load(fsys)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if got, err := template.Render(t.Context(), Input{Messages: user("x")}); got != tc.want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", tc.name, got, err, tc.want)
		}
	}
}

func TestLoadReturnsDescriptiveErrors(t *testing.T) {
	if _, err := Load(fstest.MapFS{}); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("without files: %v", err)
	}
	for _, config := range []string{`{}`, `{"chat_template": null}`, `{"chat_template": " "}`, `{"chat_template": [{"name": "x", "template": "y"}]}`} {
		if _, err := Load(fstest.MapFS{configFile: {Data: []byte(config)}}); !errors.Is(err, ErrNoTemplate) {
			t.Errorf("%s: %v", config, err)
		}
	}
	for _, config := range []string{`{`, `[]`, `{"chat_template": 1}`, `{"chat_template": "x", "bos_token": 1}`, `{"chat_template": "{% if %}"}`} {
		if _, err := Load(fstest.MapFS{configFile: {Data: []byte(config)}}); err == nil || !strings.Contains(err.Error(), configFile) {
			t.Errorf("%s: %v", config, err)
		}
	}
}

func FuzzLoadNeverPanics(f *testing.F) {
	f.Add([]byte(`{"chat_template": "{{ messages[0].content }}", "bos_token": {"content": "x"}}`))
	f.Add([]byte(`{"chat_template": [{"name": "default", "template": "{% for m in messages %}{{ m }}{% endfor %}"}]}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		_, _ = Load(fstest.MapFS{configFile: {Data: config}})
	})
}
