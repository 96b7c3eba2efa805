package hfjinja

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ardanlabs/jinja"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon returns the current time of scripts/goldens-prompt.
func noon() time.Time { return time.Date(2024, 7, 26, 13, 4, 5, 0, time.UTC) }

// variables returns the variables with which scripts/goldens-prompt renders constructs.txt.
func variables() map[string]jinja.Value {
	var messages []jinja.Value
	for _, m := range [][2]string{{"system", " Sys "}, {"user", "U"}, {"assistant", "A"}} {
		d := jinja.NewDict()
		d.AsDict().Set("role", jinja.NewString(m[0]))
		d.AsDict().Set("content", jinja.NewString(m[1]))
		messages = append(messages, d)
	}
	return map[string]jinja.Value{
		"messages": jinja.NewList(messages), "add_generation_prompt": jinja.NewBool(true),
		"tools": jinja.None(), "documents": jinja.None(),
	}
}

func render(source string) (string, error) {
	t, err := Compile(source, noon)
	if err != nil {
		return "", err
	}
	return t.Render(context.Background(), variables())
}

func TestConstructsRenderAsInJinja2(t *testing.T) {
	text, err := os.ReadFile("testdata/constructs.json")
	if err != nil {
		t.Fatal(err)
	}
	var goldens []struct {
		Template     string
		Text, Raised *string
		Fails        bool
	}
	if err := json.Unmarshal(text, &goldens); err != nil {
		t.Fatal(err)
	}
	for _, g := range goldens {
		got, err := render(g.Template)
		raised, isRaised := errors.AsType[*RaisedError](err)
		switch {
		case g.Text != nil && (err != nil || got != *g.Text):
			t.Errorf("%s\n got %q, %v\nwant %q", g.Template, got, err, *g.Text)
		case g.Raised != nil && (!isRaised || raised.Message != *g.Raised):
			t.Errorf("%s\n got %q, %v\nwant %q raised", g.Template, got, err, *g.Raised)
		case g.Fails && (err == nil || isRaised):
			t.Errorf("%s\n got %q, %v\nwant an error", g.Template, got, err)
		}
	}
}

// A construct that only Jinja2 supports must not be ignored silently.
func TestUnsupportedConstructsFail(t *testing.T) {
	for _, source := range []string{
		"{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% block x %}{% endblock %}",
		"{% with x = 1 %}{% endwith %}", "{% set a, b = 1, 2 %}", "{% set ns.x %}a{% endset %}", "{% set x | upper %}a{% endset %}",
		"{% for (a, b) in [[1, 2]] %}{% endfor %}", "{% macro f(x=[1, 2]) %}{% endmacro %}{{ f() }}",
		"{{ raise_exception(**{'message': 'x'}) }}", "{{ 1, 2 }}", "{{ 'é' is é }}", `{{ '\ud83d' }}`, `{{ '\x4' }}`, "{{ 99999999999999999999 }}",
		"{{ '%s' | format('a') }}", "{{ messages | groupby('role') }}", "{{ ['a'] | map('length') }}", "{{ 'a'.find('b', 1) }}",
		"{{ 4 is divisibleby 2 }}", "{{ strftime_now('%c') }}", "{{ strftime_now('%') }}", "{{ loop(1) }}",
	} {
		if got, err := render(source); err == nil {
			t.Errorf("%s rendered %q", source, got)
		}
	}
}

func TestRunawayTemplateEndsWithErrLimit(t *testing.T) {
	for name, source := range map[string]string{
		"text in a loop": "{% for i in range(99999) %}" + strings.Repeat("text ", 100) + "{% endfor %}",
		"output in a loop": "{% set s %}" + strings.Repeat("s", 999) + "{% endset %}{% for i in range(99999) %}{{ s }}" +
			"{% endfor %}",
		"text in a macro":       "{% macro f() %}" + strings.Repeat("text ", 100) + "{% endmacro %}{% for i in range(99999) %}{{ f() }}{% endfor %}",
		"text in a call block":  "{% macro f() %}{% for i in range(99999) %}{{ caller() }}{% endfor %}{% endmacro %}{% call f() %}" + strings.Repeat("text ", 100) + "{% endcall %}",
		"text that is joined":   "{% set ns = namespace(s='') %}{% for i in range(99999) %}{% set ns.s = ns.s + 'a few bytes more' %}{% endfor %}",
		"text with a tilde":     "{% set ns = namespace(s='') %}{% for i in range(99999) %}{% set ns.s = ns.s ~ 'a few bytes more' %}{% endfor %}",
		"lists that are joined": "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = ns.s + [i] %}{% endfor %}",
		"empty loops":           "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
		"a macro without end":   "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"a huge range":          "{{ range(1000000000) | length }}",
	} {
		if _, err := render(source); !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPanicOfLibraryIsError(t *testing.T) {
	if _, err := render("{{ [1] | select() | list }}"); err == nil {
		t.Error("no error") // if the library supports this now, find another construct
	}
}

func TestSelfContainingValueFails(t *testing.T) {
	for _, expression := range []string{"ns", "ns | tojson", "ns | string"} {
		if got, err := render("{% set ns = namespace() %}{% set ns.x = ns %}{{ " + expression + " }}"); err == nil {
			t.Errorf("%s rendered %d bytes", expression, len(got))
		}
	}
}

func FuzzCompileNeverPanics(f *testing.F) {
	text, err := os.ReadFile("testdata/constructs.txt")
	if err != nil {
		f.Fatal(err)
	}
	for source := range strings.SplitSeq(string(text), "\n%%\n") {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		_, _ = Compile(source, noon)
	})
}

func FuzzLiteralTextIsVerbatim(f *testing.F) {
	f.Add("a\n", " b \n ")
	f.Add("{ % } #", "{x}{\\\"'")
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, s := range []string{before, after} {
			if strings.ContainsAny(s, "\r") || strings.Contains(s, "{{") || strings.Contains(s, "{%") || strings.Contains(s, "{#") {
				t.Skip("not literal text")
			}
		}
		if strings.HasSuffix(before, "{") || strings.HasSuffix(after, "\n") {
			t.Skip("not literal text")
		}
		got, err := render(before + "{{ messages[1].content }}" + after)
		if want := before + "U" + after; err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
}
