package jinja

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon returns the current time of scripts/goldens-prompt.
func noon() time.Time { return time.Date(2024, 7, 26, 13, 4, 5, 0, time.UTC) }

// variables returns the variables with which scripts/goldens-prompt renders constructs.txt.
func variables() map[string]Value {
	messages := NewList()
	for _, m := range [][2]string{{"system", " Sys "}, {"user", "U"}, {"assistant", "A"}} {
		d := NewDict()
		d.Set("role", m[0])
		d.Set("content", m[1])
		messages.Items = append(messages.Items, d)
	}
	return map[string]Value{"messages": messages, "add_generation_prompt": true, "tools": nil, "documents": nil}
}

func render(source string) (string, error) {
	t, err := Compile(source, noon)
	if err != nil {
		return "", err
	}
	t.ReadJSON = func(text string) (Value, error) { return NewList(text), nil }
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

// TestUnsupportedConstructsFail: a construct that only Jinja2 has must not be ignored silently.
func TestUnsupportedConstructsFail(t *testing.T) {
	for _, source := range []string{
		"{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{% block x %}{% endblock %}",
		"{% autoescape true %}{% endautoescape %}", "{% do x %}", "{{ 'é' is é }}", `{{ '\ud83d' }}`, `{{ '\x4' }}`, "{{ [1] | pprint }}",
		"{{ ['a'] | map('pprint') }}", "{{ strftime_now('%c') }}", "{{ strftime_now('%') }}", "{{ loop(1) }}", "{{ '%z' | format(1) }}",
		"{{ '{:z}'.format(1) }}", "{{ 'a'.encode() }}", "{{ super() }}",
	} {
		if got, err := render(source); err == nil {
			t.Errorf("%s rendered %q", source, got)
		}
	}
}

// TestErrorsNameTheirPlace: an error names the line of the template, and the message that a loop had
// reached.
func TestErrorsNameTheirPlace(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{% include 'x' %}":                             "line 2 of the template: the statement 'include' is not supported, because a chat template is alone; write the text of the other template into it",
		"{% if x %}\n\n{% for y in z %}":                   "line 3 of the template: the template ends before 'endfor'",
		"{{ 1\n\n+ }}":                                     "line 3 of the template: expected an expression, but found '}}'",
		"\n{{ nope.x }}":                                   "line 2 of the template: 'nope' is undefined",
		"\n\n{{ messages[0].x.y }}":                        "line 3 of the template: 'dict object' has no attribute 'x'",
		"{% for m in messages %}\n{{ m.x.y }}{% endfor %}": "line 2 of the template, at messages[0]: 'dict object' has no attribute 'x'",
		"{% for m in messages[1:] %}{% for c in m.content %}{{ raise_exception('no') }}{% endfor %}{% endfor %}": "line 1 of the template, at messages[1]: no",
		"{% macro f(m) %}\n{{ m + 1 }}{% endmacro %}\n{{ f('a') }}":                                              "line 2 of the template: unsupported operands of +: str and int",
		"{% macro f() %}\n{% endmacro %}\n{{ f() }}{{ 1 + 'a' }}":                                                "line 3 of the template: unsupported operands of +: int and str",
		"{{ 1 | nope }}": "line 1 of the template: there is no filter 'nope'; change the template, or take another one",
	} {
		if _, err := render(source); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", source, err, want)
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

func TestSelfContainingValueFails(t *testing.T) {
	for _, expression := range []string{"ns", "ns | tojson", "ns | string"} {
		if got, err := render("{% set ns = namespace() %}{% set ns.x = ns %}{{ " + expression + " }}"); err == nil {
			t.Errorf("%s rendered %d bytes", expression, len(got))
		}
	}
}

// addConstructs adds the constructs of chat templates to the seeds.
func addConstructs(f *testing.F) {
	f.Helper()
	text, err := os.ReadFile("testdata/constructs.txt")
	if err != nil {
		f.Fatal(err)
	}
	for source := range strings.SplitSeq(string(text), "\n%%\n") {
		f.Add(source)
	}
}

func FuzzCompileNeverPanics(f *testing.F) {
	addConstructs(f)
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
