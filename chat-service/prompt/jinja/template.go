// Package jinja evaluates chat templates byte for byte as Jinja2 3.1 does, in the setup of Hugging
// Face transformers: an immutable sandbox with trim_blocks, lstrip_blocks, loop controls, generation
// blocks, tojson without HTML escaping, raise_exception and strftime_now.
//
// Compile reads a template into a tree (lexer.go, parser.go) and gives each variable a slot
// (scope.go). Render walks the tree and appends to one buffer (statement.go, expression.go). Failures
// are panics within the package, as in text/template. testdata/constructs.json has the output of
// Jinja2 for constructs of chat templates.
//
// Differences from Jinja2:
//
//   - Compile refuses include, import, extends, block and autoescape, because a chat template is alone.
//     An unknown filter or test fails when it is evaluated, not before.
//   - A name that a scope sets after an inner scope has read it is undefined there in Jinja2, even if it
//     is a variable of the render; here it has that value.
//   - These filters do not exist: batch, center, filesizeformat, forceescape, pprint, random, slice,
//     striptags, truncate, urlencode, urlize, wordcount, wordwrap and xmlattr; nor do rare methods of
//     texts, such as encode and translate. from_json exists.
//   - Places of formats take a width, a precision and the usual types; others fail.
//   - Functions take superfluous arguments without a failure.
//   - Values without a text of their own, such as functions, print their type without an address.
//   - A lazy filter, such as map, reads its input at once.
//
// A template comes with the model, and is not trusted. Compile refuses a source of more than 1 MiB,
// tags of more than 4,096 tokens, and more than 100 nested brackets or blocks. The steps and the memory
// of a render are bounded by a multiple of the size of its variables (budget.go), and a render ends
// with its context.
package jinja

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrLimit is wrapped by the error of a template or a render that exceeded a limit.
var ErrLimit = errors.New("template limit exceeded")

// A RaisedError is a template's refusal of its input by raise_exception.
type RaisedError struct{ Message string }

func (e *RaisedError) Error() string { return e.Message }

// A ValueError means that the template met a value that it cannot use, where Jinja2 fails too.
// Usually the input is at fault, not the template.
type ValueError struct{ Message string }

func (e *ValueError) Error() string { return e.Message }

// unusable returns a ValueError. It must name types and no values, because values are prompts.
func unusable(format string, args ...any) error { return &ValueError{fmt.Sprintf(format, args...)} }

// A PlaceError says where a template or a render failed. It wraps the failure.
type PlaceError struct {
	Line    int // of the template
	Message int // the index of the message that a loop had reached, or -1
	Err     error
}

func (e *PlaceError) Error() string {
	if e.Message < 0 {
		return fmt.Sprintf("line %d of the template: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("line %d of the template, at messages[%d]: %v", e.Line, e.Message, e.Err)
}

func (e *PlaceError) Unwrap() error { return e.Err }

// A Template is a compiled template. It is safe for concurrent use.
type Template struct {
	// ReadJSON is the filter from_json, which some templates use. Jinja2 has none; it may be nil.
	ReadJSON func(text string) (Value, error)

	body  *block
	scope *scope
	root  *function
	free  map[string]int // the slots of the names that are variables of a render
	now   func() time.Time
	runs  sync.Pool // of *run
}

// maxSource bounds the size of a template, in bytes.
const maxSource = 1 << 20

// Compile reads a template. strftime_now calls now. Its errors are *PlaceError.
func Compile(source string, now func() time.Time) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, limitError("a template of more than %d bytes", maxSource)
	}
	defer func() {
		if failure := recover(); failure != nil {
			place, ok := failure.(*PlaceError)
			if !ok {
				panic(failure)
			}
			t, err = nil, place
		}
	}()
	p := newParser(lex(source))
	t = &Template{scope: p.scope, body: p.body(), root: p.root, now: now}
	t.free = p.resolve()
	return t, nil
}

// A run is one render.
type run struct {
	budget
	out      []byte
	frame    *frame
	stack    []Value    // arguments of calls
	loop     *loopState // the innermost active loop
	line     int
	messages *List
	now      func() time.Time
	readJSON func(string) (Value, error)
}

// Render renders the template with variables. Concurrent renders must not share lists or mappings. Its
// errors are *PlaceError; when the stream of ctx is stopped, Render soon returns the cause.
func (t *Template) Render(ctx context.Context, variables map[string]Value) (text string, err error) {
	r, _ := t.runs.Get().(*run)
	if r == nil {
		r = &run{now: t.now, readJSON: t.ReadJSON}
	}
	r.budget, r.line, r.loop = newBudget(ctx, variables), 1, nil
	r.messages, _ = variables["messages"].(*List)
	r.frame = newFrame(t.root, nil)
	for name, slot := range t.free {
		if v, ok := variables[name]; ok {
			r.frame.slots[slot] = v
		} else if g := globals[name]; g != nil {
			r.frame.slots[slot] = g
		}
	}
	defer func() {
		if failure := recover(); failure != nil {
			text, err = "", r.failure(failure)
		}
		clear(r.stack[:cap(r.stack)])
		r.ctx, r.frame, r.loop, r.messages, r.stack, r.out = nil, nil, nil, nil, r.stack[:0], r.out[:0]
		if cap(r.out) <= maxKept {
			t.runs.Put(r)
		}
	}()
	r.enterScope(t.scope)
	r.exec(t.body)
	return string(r.out), nil
}

// maxKept bounds the size of a buffer that is kept for the next render.
const maxKept = 1 << 20

// failure returns the error of a panic. It panics again for the panics that are faults of the code.
func (r *run) failure(failure any) error {
	switch err := failure.(type) {
	case stopCause:
		return err.error
	case *ValueError, *RaisedError, *unknownError:
	case error:
		if !errors.Is(err, ErrLimit) {
			panic(failure)
		}
	default:
		panic(failure)
	}
	place := &PlaceError{Line: r.line, Message: -1, Err: failure.(error)}
	for st := r.loop; st != nil && place.Message < 0 && r.messages != nil; st = st.around {
		for i, m := range r.messages.Items {
			if message, ok := st.item.(*Dict); ok && m == message {
				place.Message = i
			}
		}
	}
	return place
}
