// Package hfjinja renders chat templates byte for byte as Hugging Face transformers does.
//
// transformers renders with Jinja2 in an immutable sandbox, with trim_blocks, lstrip_blocks, loop
// controls, tojson without HTML escaping, raise_exception and strftime_now. This package evaluates
// with github.com/ardanlabs/jinja. It translates each template first, because a prompt that differs
// by a newline still works, but makes answers worse without any error. testdata/constructs.json has
// the output of Jinja2 for the constructs that chat templates use, and for those that the library
// alone renders differently.
//
// Remaining differences:
//
//   - A namespace cannot be an element of a list, a mapping or a namespace.
//   - Where Jinja2 fails on an undefined variable, such as nope.x, or on a value of the wrong type
//     outside of +, in and loops, such as 1 < "a", this package continues with nothing, or with the
//     value's text. A division by zero is 0.
//   - Compile refuses include, import, extends, block, with, do, assignments to several variables,
//     and arguments with "**". Other unsupported parts fail only when they are executed, so that a
//     template for tools still serves conversations without tools: macro defaults that are lists or
//     mappings with a comma, and functions, filters, tests and methods that neither the library nor
//     this package has.
//   - |safe has no effect: Jinja2 escapes text that is added to its result for HTML.
//   - These follow the library: "//" and "%" of negative numbers, "**" of integers, "-1|abs",
//     chains of comparisons, tuples, which print as lists, first, last and join of strings, case in
//     sort, unique and dictsort, .capitalize() and .title() of anything but lower case, and
//     variables set in a loop's else, which outlive it.
//
// A template comes with the model, and is not trusted. Compile refuses a source of more than 1 MiB,
// tags of more than 4,096 tokens, and more than 64 nested brackets or blocks. A render fails with
// ErrLimit at 16 MiB of output or of one text, 256 MiB of made values, 64 MiB in one value with all
// that it contains, a million loop steps, 200 nested macro calls, or 10 seconds, and it ends with its
// context. Only namespaces can change, and no value can contain one, so no value contains itself. A
// panic in the library becomes an error.
package hfjinja

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ardanlabs/jinja"
)

// ErrLimit is wrapped by the error of a render that exceeded a limit.
var ErrLimit = errors.New("template limit exceeded")

// A RaisedError is a template's refusal of its input by raise_exception.
type RaisedError struct{ Message string }

func (e *RaisedError) Error() string { return e.Message }

// A ValueError means that the template met a value that it cannot use, where Jinja2 would fail too.
// Usually the input is at fault, not the template.
type ValueError struct{ Message string }

func (e *ValueError) Error() string { return e.Message }

// unusable returns a ValueError. It must name types and no values, because values are prompts.
func unusable(format string, args ...any) error { return &ValueError{fmt.Sprintf(format, args...)} }

// A Template is a compiled template. It is safe for concurrent use.
type Template struct {
	compiled *jinja.Template
	consts   map[string]string // by variable
	used     map[string]bool   // the functions that the translation calls
	costs    []cost
	dialect  string
	now      func() time.Time

	runs sync.Pool // of *run
}

// A run is the budget of one render, and the functions that report to it, which are reused.
type run struct {
	budget
	vars map[string]jinja.Value
}

// Own is the prefix of the translation's own variables and functions. Templates and requests must
// not use it.
const Own = "_hf_"

// Compile translates and compiles source. strftime_now calls now.
func Compile(source string, now func() time.Time) (*Template, error) {
	translation, dialect, err := translate(source)
	if err != nil {
		return nil, err
	}
	compiled, err := jinja.Compile(dialect)
	if err != nil {
		return nil, fmt.Errorf("after translation: %w", err)
	}
	return &Template{
		compiled: compiled, consts: translation.consts, used: translation.used, costs: translation.costs, dialect: dialect, now: now,
	}, nil
}

func (t *Template) newRun() *run {
	r := &run{vars: map[string]jinja.Value{}}
	r.costs = t.costs
	add := func(name string, fn function) {
		if fn != nil {
			r.vars[name] = jinja.NewCallable(name, fn)
		}
	}
	for name, fn := range r.globals(t.now) {
		if t.Mentions(name) { // each variable slows down every render
			add(name, fn)
		}
	}
	for name := range t.used {
		add(name, r.function(name))
	}
	for id, text := range t.consts {
		r.vars[id] = jinja.NewString(text)
	}
	return r
}

// Mentions reports whether the template may use a variable of this name. Other variables have no
// effect.
func (t *Template) Mentions(name string) bool { return strings.Contains(t.dialect, name) }

// Render renders the template with vars, and adds variables of its own to vars. Concurrent renders
// must not share lists or mappings in vars. When ctx's stream is stopped, Render soon returns
// the cause.
func (t *Template) Render(ctx context.Context, vars map[string]jinja.Value) (text string, err error) {
	r, _ := t.runs.Get().(*run)
	if r == nil {
		r = t.newRun()
	}
	r.budget = budget{ctx: ctx, began: time.Now(), costs: t.costs}
	defer func() {
		r.budget = budget{}
		t.runs.Put(r)
	}()
	defer func() {
		if p := recover(); p != nil { // the library indexes without bounds checks in places
			err = fmt.Errorf("template engine: %v", p)
		}
	}()
	for name, value := range r.vars {
		if _, ok := vars[name]; !ok {
			vars[name] = value
		}
	}
	return t.compiled.RenderValues(vars)
}
