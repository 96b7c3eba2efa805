package prompt

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/whence-dev/whence/chat-service/prompt/jinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A golden is the output of Jinja2 for a template and a conversation; scripts/goldens-prompt writes
// it.
type golden struct {
	Template, Conversation string
	Text, Raised           *string
	input                  Input
}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func goldens(t testing.TB) []golden {
	t.Helper()
	var conversations []struct {
		Name                string
		AddGenerationPrompt bool `json:"add_generation_prompt"`
		Messages            []*chatv1.Message
	}
	readJSON(t, "testdata/conversations.json", &conversations)
	inputs := map[string]Input{}
	for _, c := range conversations {
		inputs[c.Name] = Input{Messages: c.Messages, AddGenerationPrompt: c.AddGenerationPrompt}
	}
	var all []golden
	readJSON(t, "testdata/goldens.json", &all)
	for i := range all {
		all[i].input = inputs[all[i].Conversation]
	}
	return all
}

// templates returns the templates that the goldens name.
func templates(t testing.TB) map[string]*Template {
	t.Helper()
	tiny, err := Load(whencetiny.FS())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Template{"whence-tiny": tiny}
	paths, err := filepath.Glob("testdata/templates/*.jinja")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".jinja")
		if all[name], err = New(string(source), map[string]string{"bos_token": "<s>", "eos_token": "</s>"}); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return all
}

// compare renders g and compares the output.
func compare(t *testing.T, template *Template, g golden) {
	t.Helper()
	got, err := template.Verbatim(t.Context(), g.input)
	switch {
	case g.Text != nil && (err != nil || got != *g.Text):
		t.Errorf("%s, %s:\n got %q, %v\nwant %q", g.Template, g.Conversation, got, err, *g.Text)
	case g.Raised != nil:
		raised, ok := errors.AsType[*jinja.RaisedError](err)
		if e := streamerr.As(err); !ok || e.Reason != streamerr.Invalid || e.Param != "messages" || raised.Message != *g.Raised {
			t.Errorf("%s, %s: got %q, %v, want %q", g.Template, g.Conversation, got, err, *g.Raised)
		}
	}
}

func TestPromptsMatchTransformers(t *testing.T) {
	byName := templates(t)
	for _, g := range goldens(t) {
		compare(t, byName[g.Template], g)
	}
}

func TestTemplateIsSafeForConcurrentUse(t *testing.T) {
	byName, all := templates(t), goldens(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, g := range all {
				compare(t, byName[g.Template], g)
			}
		})
	}
	wg.Wait()
}

func FuzzContentsAreVerbatim(f *testing.F) {
	for _, g := range goldens(f) {
		if g.Template == "whence-tiny" && len(g.input.Messages) > 1 {
			f.Add(g.input.Messages[0].GetContent(), g.input.Messages[1].GetContent())
		}
	}
	f.Add("\xff", "\x00")
	template, err := Load(whencetiny.FS())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, system, user string) {
		got, err := template.Render(t.Context(), Input{Messages: []*chatv1.Message{{Role: "system", Content: system}, {Role: "user", Content: user}}, AddGenerationPrompt: true})
		if both := system + user; !utf8.ValidString(system) || !utf8.ValidString(user) || strings.Contains(both, "\x00") {
			if !errors.Is(err, streamerr.Invalid) {
				t.Errorf("got %q, %v, want it refused", got, err)
			}
			return
		}
		want := "<|im_start|>system\n" + system + "<|im_end|>\n<|im_start|>user\n" + user + "<|im_end|>\n<|im_start|>assistant\n"
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	byName := templates(b)
	for _, g := range goldens(b) {
		switch g.Conversation {
		case "system and user", "long conversation", "long content":
		default:
			continue
		}
		if g.Template != "whence-tiny" && g.Template != "reasoning" {
			continue
		}
		b.Run(g.Template+"/"+strings.ReplaceAll(g.Conversation, " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(*g.Text)))
			for b.Loop() {
				if _, err := byName[g.Template].Render(b.Context(), g.input); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
