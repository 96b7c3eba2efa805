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

	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/chat-service/prompt/jinja"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// now is the time at which both render.
var now = time.Date(2024, 7, 26, 13, 4, 5, 0, time.UTC)

// A templateRow has the results of comparing one family's chat template.
type templateRow struct {
	family         string
	renders        int
	raised, failed int // by Jinja2
	served         int // rendered from requests as clients send them
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

// A rendering is the outcome of one conversation: exactly one field is set.
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

// A subject is a compared chat template.
type subject struct {
	name, source string
	tokens       object           // the model's special tokens
	served       *prompt.Template // in the form of chat-service
}

// subjects returns the templates of the families that have one, and the templates of the directory
// also, if set.
func subjects(packages, also string) ([]subject, error) {
	var list []subject
	for _, f := range families(packages) {
		s, err := f.subject()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if s.source != "" {
			list = append(list, s)
		}
	}
	if also == "" {
		return list, nil
	}
	files, err := filepath.Glob(filepath.Join(also, "*.jinja"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("the directory %s has no *.jinja", also)
	}
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s := subject{name: strings.TrimSuffix(filepath.Base(file), ".jinja"), source: string(source), tokens: object{{"bos_token", "<s>"}, {"eos_token", "</s>"}}}
		if s.served, err = prompt.New(s.source, map[string]string{"bos_token": "<s>", "eos_token": "</s>"}); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		list = append(list, s)
	}
	return list, nil
}

// compareTemplates renders n conversations.
func compareTemplates(ctx context.Context, s subject, n int, seed uint64) (*templateRow, error) {
	template, err := jinja.Compile(s.source, func() time.Time { return now })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	w := newWriter(seed)
	q := templateQuestion{Now: now.Format("2006-01-02T15:04:05"), Template: s.source}
	for range n {
		q.Variables = append(q.Variables, w.variables(s.tokens))
	}
	var a []rendering
	if err := ask(ctx, []string{python, "-c", templatesScript}, q, &a); err != nil {
		return nil, err
	}
	r := &templateRow{family: s.name, renders: n}
	for i, want := range a {
		switch {
		case want.Raised != nil:
			r.raised++
		case want.Failed != nil:
			r.failed++
		}
		if got := render(template, q.Variables[i]); !same(got, want) {
			r.complain("%s\n got %v\nwant %v", text(q.Variables[i]), got, want)
		}
		if in, ok := servedInput(q.Variables[i]); ok && !strings.Contains(s.source, "strftime_now") { // which uses the current time
			r.served++
			if got, ok := agrees(s.served, in, want); !ok {
				r.complain("served: %s\n got %q\nwant %v", text(q.Variables[i]), got, want)
			}
		}
	}
	for range n {
		if messages := w.messages(); !answers(s.served, messages) {
			r.complain("neither rendered nor refused: %v", messages)
		}
	}
	return r, nil
}

// answers reports whether a client's conversation is rendered, or refused as the client's error.
func answers(t *prompt.Template, messages []*chatv1.Message) bool {
	text, err := t.Render(context.Background(), prompt.Input{Messages: messages, AddGenerationPrompt: true})
	return err == nil && utf8.ValidString(text) || errors.Is(err, streamerr.Invalid)
}

// same reports whether both have the same text or the same refusal, or both failed, for any
// reasons.
func same(got, want rendering) bool {
	equal := func(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return equal(got.Text, want.Text) && equal(got.Raised, want.Raised) && (got.Failed == nil) == (want.Failed == nil)
}

func render(t *jinja.Template, vars object) rendering {
	values := map[string]jinja.Value{}
	for _, m := range vars {
		values[m.key] = jinjaValue(m.value)
	}
	text, err := t.Render(context.Background(), values)
	if raised, ok := errors.AsType[*jinja.RaisedError](err); ok {
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
		return nil
	case object:
		d := jinja.NewDict()
		for _, m := range v {
			d.Set(m.key, jinjaValue(m.value))
		}
		return d
	case []object:
		items := make([]jinja.Value, len(v))
		for i := range v {
			items[i] = jinjaValue(v[i])
		}
		return jinja.NewList(items...)
	case []any:
		items := make([]jinja.Value, len(v))
		for i := range v {
			items[i] = jinjaValue(v[i])
		}
		return jinja.NewList(items...)
	case json.Number:
		n, err := jinja.Number(v.String())
		if err != nil {
			panic(err) // cannot fail: our own number
		}
		return n
	default: // a text or a bool
		return v
	}
}

// subject returns the family's chat template; its source is empty if the family has none.
func (f family) subject() (subject, error) {
	s := subject{name: f.name}
	data, err := os.ReadFile(filepath.Join(f.dir, "tokenizer_config.json"))
	if err != nil {
		return s, err
	}
	var config map[string]any
	if err := json.Unmarshal(data, &config); err != nil {
		return s, err
	}
	for _, name := range []string{"bos_token", "eos_token", "unk_token", "pad_token"} {
		token := config[name]
		if long, ok := token.(map[string]any); ok {
			token = long["content"]
		}
		if token != nil {
			s.tokens = append(s.tokens, member{name, token})
		}
	}
	if s.source, _ = config["chat_template"].(string); s.source != "" {
		s.served, err = prompt.Load(os.DirFS(f.dir))
	}
	return s, err
}

func templateTable(rows []*templateRow) string {
	var b strings.Builder
	b.WriteString("| family | renders | served | refused by both | failed in both | mismatches |\n|---|--:|--:|--:|--:|--:|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d |\n", r.family, r.renders, r.served, r.raised, r.failed, r.mismatches)
	}
	return b.String() + differences(rows)
}
