package jinja

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/pkg/stream"
)

// hostile are templates that would end the process or keep it busy for ever. Most did: a stack that
// overflows, or memory that runs out, ends a Go process, whatever recovers.
func hostile() map[string]string {
	const (
		large   = "{% set s = 'x' * 10000000 %}"
		self    = "{% set ns = namespace() %}{% set ns.x = ns %}{% set m = namespace() %}{% set m.x = m %}"
		doubled = "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
	)
	format := make([]string, 40)
	for i := range format {
		format[i] = fmt.Sprintf("'{%d}{%d}'", i+1, i+1)
	}
	all := map[string]string{
		"text times a number":                 "{{ 'x' * 3000000000 }}",
		"a number times text":                 "{{ 3000000000 * 'x' }}",
		"text that doubles":                   "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s * 2 %}{% endfor %}",
		"text that is added to itself":        "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
		"a long separator":                    "{% set s = 'x' * 1000000 %}{{ range(100000) | join(s) | length }}",
		"join of a large text":                large + "{{ [s, s, s] | join | length }}",
		"a method that replaces":              "{% set s = 'x' * 1000000 %}{{ s.replace('x', s) | length }}",
		"a filter that replaces":              "{% set s = 'x' * 1000000 %}{{ s | replace('x', s) | length }}",
		"replaced nothing":                    large + "{{ s | replace('', s) | length }}",
		"an indent":                           "{{ 'a\nb' | indent(3000000000) | length }}",
		"many indents":                        "{% set s = 'a\n' * 100000 %}{{ s | indent(1000000) | length }}",
		"a format that doubles":               "{{ '{0}{0}'.format(" + strings.Join(format, ",") + ") | length }}",
		"an indent of JSON":                   large + "{{ [[[[1]]]] | tojson(indent=s) }}",
		"a separator of JSON":                 large + "{{ range(100) | list | tojson(separators=[s, s]) }}",
		"texts that are kept":                 large + "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l, s | upper] %}{% endfor %}",
		"searches":                            large + "{% for i in range(100000) %}{% set x = 'yx' in s %}{% endfor %}",
		"lists that are kept":                 "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l, [" + strings.Repeat("1,", 1000) + "1]] %}{% endfor %}",
		"slices that are kept":                "{% set l = range(100000) %}{% for i in range(99999) %}{% set x = l[1:] %}{% endfor %}",
		"ranges in a loop":                    "{% for i in range(99999) %}{% set x = range(99999) %}{% endfor %}",
		"characters of a large text":          large + "{% for c in s %}{% for d in s %}{% endfor %}{% endfor %}",
		"words of a large text":               "{% set s = 'x ' * 4000000 %}{{ s.split() | length }}{{ s.split('x') | length }}",
		"JSON that is read":                   "{% set s = '[' ~ '[],' * 4000000 ~ '1]' %}{{ s | fromjson | length }}",
		"lists that double, written":          doubled + "{{ ns.a }}",
		"lists that double, as JSON":          doubled + "{{ ns.a | tojson }}",
		"lists that double, in a filter":      doubled + "{{ ns.a | upper | length }}",
		"lists that double, compared":         doubled + "{{ ns.a == ns.b }}",
		"lists that double without namespace": "{% set a = [1] %}" + strings.Repeat("{% set a = [a, a] %}", 40) + "{% set b = [1] %}" + strings.Repeat("{% set b = [b, b] %}", 40) + "{{ a == b }}",
		"lists that double by +":              "{% set a = ['x' * 1000000] %}" + strings.Repeat("{% set a = a + a %}", 18) + "{{ a | join | length }}",
		"mappings that double":                "{% set a = {'k': 1} %}" + strings.Repeat("{% set a = {'k': a, 'l': a} %}", 40) + "{{ a }}",
		"tuples that double, as keys":         "{% set t = (1,) %}" + strings.Repeat("{% set t = (t, t) %}", 40) + "{{ {t: 1} | length }}",
		"a key of large texts":                large + "{{ {(s, s, s): 1} | length }}",
		"keys of a sort":                      large + "{% for i in range(99999) %}{% set x = [s, s] | sort %}{% endfor %}",
		"texts that are compared":             large + "{% set u = s | upper | lower %}{% for i in range(99999) %}{% set x = s == u %}{% endfor %}",
		"arguments that double":               "{% macro f(a) %}{{ f([a, a]) }}{% endmacro %}{{ f([1]) }}",
		"a large list in itself":              large + "{% set l = [s] %}" + strings.Repeat("{% set l = l + l %}", 20),
		"a default that calls its macro":      "{% macro f(x=f()) %}{% endmacro %}{{ f() }}",
		"a caller that calls itself":          "{% set ns = namespace() %}{% macro f() %}{% set ns.c = caller %}{{ caller() }}{% endmacro %}{% call f() %}{{ ns.c() }}{% endcall %}",
		"macros that call two":                macros(100),
		"a large body":                        "{% for i in range(99999) %}" + strings.Repeat("{% if i in [1, 2, 3, 4] %}{% endif %}", 1000) + "{% endfor %}",
		"nested brackets":                     "{{ " + strings.Repeat("(", 300_000) + "1" + strings.Repeat(")", 300_000) + " }}",
		"nested lists":                        "{{ " + strings.Repeat("[", 300_000) + "1" + strings.Repeat("]", 300_000) + " }}",
		"signs":                               "{{ " + strings.Repeat("- ", 400_000) + "1 }}",
		"not":                                 "{{ " + strings.Repeat("not ", 200_000) + "1 }}",
		"accessors":                           "{{ messages" + strings.Repeat(".x", 100_000) + " }}",
		"nested blocks":                       strings.Repeat("{% if 1 %}", 40_000) + strings.Repeat("{% endif %}", 40_000),
		"nested loops":                        strings.Repeat("{% for i in [1] %}", 20_000) + strings.Repeat("{% endfor %}", 20_000),
		"a large source":                      strings.Repeat("{{1}}\n", 200_000),
		"variables of a loop":                 "{% for i in [1] %}" + assignments(20_000) + "{% endfor %}",
	}
	for _, use := range []string{"ns", "[ns] == [m]", "ns in [m]", "ns is eq m", "[ns] | join", "ns | upper", "ns | string"} {
		all["a namespace in itself, "+use] = self + "{{ " + use + " }}"
	}
	return all
}

func macros(n int) string {
	var b strings.Builder
	b.WriteString("{% macro m0() %}{% endmacro %}")
	for i := range n {
		fmt.Fprintf(&b, "{%% macro m%d() %%}{{ m%d() }}{{ m%d() }}{%% endmacro %%}", i+1, i, i)
	}
	fmt.Fprintf(&b, "{{ m%d() }}", n)
	return b.String()
}

func assignments(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{%%set v%d=1%%}", i)
	}
	return b.String()
}

func TestHostileTemplatesEnd(t *testing.T) {
	for name, source := range hostile() {
		_, err := render(source)
		_, unusable := errors.AsType[*ValueError](err)
		if harmless[name] && err != nil && !unusable || !harmless[name] && !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// harmless are the templates that take little memory and few steps here.
var harmless = map[string]bool{
	"a format that doubles": true, "tuples that double, as keys": true, "a large list in itself": true, "variables of a loop": true, "slices that are kept": true, "ranges in a loop": true,
	"a namespace in itself, ns is eq m": true, "a namespace in itself, [ns] == [m]": true, "a namespace in itself, ns in [m]": true,
}

// TestLargeSlicesTakeNoMemory: the bounds of a slice may lie far outside of the sequence.
func TestLargeSlicesTakeNoMemory(t *testing.T) {
	for expression, want := range map[string]string{
		"'xé'[0:1000000000000:2]": "x", "'x'[1000000000000:0:-2]": "", "[1][0:1000000000000:2]": "[1]", "[1][1000000000000::-1]": "[1]",
		"'ab'[-1000000000000:]": "ab", "[1, 2][::-9223372036854775807]": "[2]", "[1, 2][::9223372036854775807]": "[1]",
	} {
		if got, err := render("{{ " + expression + " }}"); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", expression, got, err, want)
		}
	}
}

func TestStoppedRenderEnds(t *testing.T) {
	compiled, err := Compile("{% for i in range(1000) %}{% set x = i + 1 %}{% endfor %}", noon)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the client has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if text, err := compiled.Render(ctx, variables()); !errors.Is(err, cause) {
		t.Errorf("a canceled render: %q, %v", text, err)
	}
	stopped, control := stream.WithControl(t.Context(), time.Second)
	defer control.Release()
	control.Stop(cause)
	if text, err := compiled.Render(stopped, variables()); !errors.Is(err, cause) {
		t.Errorf("a stopped render: %q, %v", text, err)
	}
	if _, err := compiled.Render(t.Context(), variables()); err != nil {
		t.Errorf("a render of its own: %v", err)
	}
}

// FuzzRenderEnds renders any template: it gives a text or an error, within the budget.
func FuzzRenderEnds(f *testing.F) {
	addConstructs(f)
	f.Fuzz(func(t *testing.T, source string) {
		if text, err := render(source); err == nil && len(text) > 2*MaxOutput {
			t.Errorf("%d bytes", len(text))
		}
	})
}
