package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"

	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/chat-service/prompt/hfjinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// now is when both render.
var now = time.Date(2024, 7, 26, 13, 4, 5, 0, time.UTC)

// A templateRow is what a comparison of one family's chat template has found.
type templateRow struct {
	family         string
	renders        int
	raised, failed int // by Jinja2, of them
	mismatches     int
	first          []string
}

func (r *templateRow) differences() []string { return r.first }

func (r *templateRow) complain(format string, args ...any) {
	if r.mismatches++; len(r.first) < 5 {
		r.first = append(r.first, r.family+": "+fmt.Sprintf(format, args...))
	}
}

type templateQuestion struct {
	Now       string   `json:"now"`
	Template  string   `json:"template"`
	Variables []object `json:"variables"`
}

// A rendering is what became of one conversation: one of the three.
type rendering struct{ Text, Raised, Failed *string }

func (r rendering) String() string {
	switch {
	case r.Text != nil:
		return fmt.Sprintf("%q", *r.Text)
	case r.Raised != nil:
		return "raised " + *r.Raised
	default:
		return "failed: " + *r.Failed
	}
}

// compareTemplates renders n conversations with the family's chat template; it returns nil if the family has none.
func compareTemplates(ctx context.Context, f family, n int, seed uint64) (*templateRow, error) {
	source, tokens, err := f.template()
	if err != nil || source == "" {
		return nil, err
	}
	served, err := prompt.Load(os.DirFS(f.dir))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	template, err := hfjinja.Compile(source, func() time.Time { return now })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	w := newWriter(seed)
	q := templateQuestion{Now: now.Format("2006-01-02T15:04:05"), Template: source}
	for range n {
		q.Variables = append(q.Variables, w.variables(tokens))
	}
	var a []rendering
	if err := ask(ctx, []string{python, "-c", templatesScript}, q, &a); err != nil {
		return nil, err
	}
	r := &templateRow{family: f.name, renders: n}
	for i, want := range a {
		switch {
		case want.Raised != nil:
			r.raised++
		case want.Failed != nil:
			r.failed++
		}
		if got := render(template, q.Variables[i]); !same(got, want) {
			text, err := json.Marshal(q.Variables[i])
			if err != nil {
				return nil, err
			}
			r.complain("%s\n got %v\nwant %v", text, got, want)
		}
	}
	for range n {
		if messages := w.messages(); !answers(served, messages) {
			r.complain("neither rendered nor refused: %v", messages)
		}
	}
	return r, nil
}

// answers reports whether a conversation as clients send it is rendered, or refused as theirs to mend.
func answers(t *prompt.Template, messages []*chatv1.Message) bool {
	text, err := t.Render(prompt.Input{Messages: messages, AddGenerationPrompt: true})
	return err == nil && utf8.ValidString(text) || errors.Is(err, streamerr.Invalid)
}

// same holds for the same text, the same refusal, or a failure of both, each for its own reason.
func same(got, want rendering) bool {
	equal := func(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return equal(got.Text, want.Text) && equal(got.Raised, want.Raised) && (got.Failed == nil) == (want.Failed == nil)
}

func render(t *hfjinja.Template, vars object) rendering {
	values := map[string]jinja.Value{}
	for _, m := range vars {
		values[m.key] = jinjaValue(m.value)
	}
	text, err := t.Render(values)
	if raised, ok := errors.AsType[*hfjinja.RaisedError](err); ok {
		return rendering{Raised: &raised.Message}
	}
	if err != nil {
		complaint := err.Error()
		return rendering{Failed: &complaint}
	}
	return rendering{Text: &text}
}

func jinjaValue(v any) jinja.Value {
	switch v := v.(type) {
	case nil:
		return jinja.None()
	case object:
		d := jinja.NewDict()
		for _, m := range v {
			d.AsDict().Set(m.key, jinjaValue(m.value))
		}
		return d
	case []object:
		items := make([]jinja.Value, len(v))
		for i := range v {
			items[i] = jinjaValue(v[i])
		}
		return jinja.NewList(items)
	case []any:
		items := make([]jinja.Value, len(v))
		for i := range v {
			items[i] = jinjaValue(v[i])
		}
		return jinja.NewList(items)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return jinja.NewInt(n)
		}
		f, err := v.Float64()
		if err != nil {
			panic(err) // a number of our own
		}
		return jinja.NewFloat(f)
	default:
		return jinja.FromGoValue(v)
	}
}

// template is the source of the family's chat template, and its special tokens.
func (f family) template() (source string, tokens object, err error) {
	data, err := os.ReadFile(filepath.Join(f.dir, "tokenizer_config.json"))
	if err != nil {
		return "", nil, err
	}
	var config map[string]any
	if err := json.Unmarshal(data, &config); err != nil {
		return "", nil, fmt.Errorf("%s: %w", f.name, err)
	}
	for _, name := range []string{"bos_token", "eos_token", "unk_token", "pad_token"} {
		token := config[name]
		if long, ok := token.(map[string]any); ok {
			token = long["content"]
		}
		if token != nil {
			tokens = append(tokens, member{name, token})
		}
	}
	source, _ = config["chat_template"].(string)
	return source, tokens, nil
}

func templateTable(rows []*templateRow) string {
	var b strings.Builder
	b.WriteString("| family | renders | refused by both | failed in both | mismatches |\n|---|--:|--:|--:|--:|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", r.family, r.renders, r.raised, r.failed, r.mismatches)
	}
	return b.String() + differences(rows)
}
