package hfjinja

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"

	"github.com/whence-dev/whence/pkg/stream"
)

const (
	// MaxOutput bounds the output of a render and every text, in bytes. The text of a macro counts
	// again where its result is written.
	MaxOutput = 16 << 20
	// maxMade bounds the bytes of all values that a render makes. A template that appends each
	// message to the previous ones makes a quadratic number of bytes.
	maxMade = 256 << 20
	// maxValue bounds the size of a list or mapping with all that it contains, in bytes. A list that
	// contains another list twice counts it twice: the library writes and compares it twice.
	maxValue  = 64 << 20
	valueSize = 40 // bytes of a list element
	maxSteps  = 1 << 20
	maxDepth  = 200
	maxRange  = 100_000 // as in Jinja2's sandbox
	// maxTime bounds a render, because the library's own operations on large texts are not counted.
	// A render takes milliseconds.
	maxTime = 10 * time.Second
	// A render looks at its context and at the clock once in so many calls of the budget.
	ticksPerLook = 64
)

// A budget counts what one render has used. The translation inserts the calls by which the template
// reports to it.
type budget struct {
	ctx   context.Context //nolint:containedctx // of one render; the library's functions take none
	began time.Time
	ticks uint
	costs []cost // of the template

	written, made, steps, depth int
	spaces                      map[*jinja.Dict]*space
}

// A cost is the size of the parts of a loop body, macro or call block that its source determines.
type cost struct{ text, made int }

// functions returns the budget's function that the translation calls name, or nil.
func (b *budget) function(name string) function {
	switch name {
	case "_hf_out":
		return b.out
	case "_hf_step":
		return b.step
	case "_hf_look":
		return b.look
	case "_hf_enter":
		return b.enter
	case "_hf_leave":
		return b.leave
	case "_hf_add":
		return b.add
	case "_hf_concat":
		return b.concat
	case "_hf_mul":
		return b.multiply
	case "_hf_slice":
		return b.slice
	case "_hf_iter":
		return b.iterable
	case "_hf_in":
		return b.contains(true)
	case "_hf_not_in":
		return b.contains(false)
	case "_hf_made":
		return b.compose
	case "_hf_stored":
		return b.stored
	case "_hf_counted":
		return b.counted
	case "_hf_listed":
		return b.listed
	case "_hf_parsed":
		return b.parsed
	}
	if m, ok := strings.CutPrefix(name, "_hf_method_"); ok {
		return b.method(m)
	}
	if f, ok := strings.CutPrefix(name, "_hf_filter_"); ok {
		return b.filter(f)
	}
	return helpers[name]
}

// tick ends a render that has been stopped or takes too long.
func (b *budget) tick() error {
	if b.ticks++; b.ticks%ticksPerLook != 0 {
		return nil
	}
	if cause := stream.Cause(b.ctx); cause != nil {
		return cause
	}
	if time.Since(b.began) > maxTime {
		return fmt.Errorf("%w: more than %v", ErrLimit, maxTime)
	}
	return nil
}

func (b *budget) write(n int) error {
	if b.written += n; b.written > MaxOutput {
		return fmt.Errorf("%w: more than %d bytes of output", ErrLimit, MaxOutput)
	}
	return nil
}

// makeText counts a text of n bytes that is made from other values.
func (b *budget) makeText(n int) error {
	if n > MaxOutput {
		return fmt.Errorf("%w: a text of more than %d bytes", ErrLimit, MaxOutput)
	}
	return b.make(n)
}

// make counts a value of n bytes that is made from other values.
func (b *budget) make(n int) error {
	if b.made += n; b.made > maxMade {
		return fmt.Errorf("%w: more than %d bytes in values that are made of others", ErrLimit, maxMade)
	}
	return b.tick()
}

// text counts a new text, and returns it.
func (b *budget) text(s string) (jinja.Value, error) {
	if err := b.makeText(len(s)); err != nil {
		return jinja.Undefined(), err
	}
	return jinja.NewString(s), nil
}

// list counts a new list, and returns it.
func (b *budget) list(items []jinja.Value) (jinja.Value, error) {
	if err := b.make(valueSize * len(items)); err != nil {
		return jinja.Undefined(), err
	}
	return jinja.NewList(items), nil
}

// weigh returns the size of v with all that it contains, or an error above maxValue.
func (b *budget) weigh(v jinja.Value) (int, error) {
	size := 0
	err := b.weighInto(&size, v, 0)
	return size, err
}

func (b *budget) weighInto(size *int, v jinja.Value, depth int) error {
	*size += valueSize
	switch {
	case v.IsString():
		*size += len(v.AsString())
	case depth > maxNesting:
		return errNesting
	case v.IsList():
		for _, item := range v.AsList().Items {
			if err := b.weighInto(size, item, depth+1); err != nil {
				return err
			}
		}
	case v.IsDict():
		d := v.AsDict()
		if b.spaces[d] != nil && depth > 0 {
			return errors.New("a value that contains a namespace or a cycler is not supported")
		}
		for _, key := range d.Keys {
			*size += len(key)
			if err := b.weighInto(size, d.Data[key], depth+1); err != nil {
				return err
			}
		}
	}
	if *size > maxValue {
		return fmt.Errorf("%w: a value that contains more than %d bytes", ErrLimit, maxValue)
	}
	return nil
}

// compose wraps a new list or mapping.
func (b *budget) compose(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if _, err := b.weigh(args[0]); err != nil {
		return jinja.Undefined(), err
	}
	return args[0], b.tick()
}

// out wraps every expression that is written. It converts values to text as Python does.
func (b *budget) out(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 {
		return jinja.Undefined(), errors.New("tuples cannot be written")
	}
	text, err := text(args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	if err := b.write(len(text)); err != nil {
		return jinja.Undefined(), err
	}
	if args[0].IsString() {
		return args[0], b.tick()
	}
	return jinja.NewString(text), b.tick()
}

// step counts an iteration of a loop. The argument is the index of the body's cost.
func (b *budget) step(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if b.steps++; b.steps > maxSteps {
		return jinja.Undefined(), fmt.Errorf("%w: more than %d loop steps", ErrLimit, maxSteps)
	}
	spent := b.costs[args[0].AsInt()]
	if err := b.make(spent.made); err != nil {
		return jinja.Undefined(), err
	}
	return nothing, b.write(spent.text)
}

// look is a tick in a long sequence of statements.
func (b *budget) look([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	return nothing, b.tick()
}

// enter counts the start of a call of a macro or a call block, and leave its end.
func (b *budget) enter(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if b.depth++; b.depth > maxDepth {
		return jinja.Undefined(), fmt.Errorf("%w: more than %d nested macro calls", ErrLimit, maxDepth)
	}
	return b.step(args, nil)
}

// leave returns its argument, which is the default of a macro's parameter, or nothing.
func (b *budget) leave(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	b.depth--
	if len(args) > 0 {
		return args[0], nil
	}
	return nothing, nil
}

var nothing = jinja.NewString("")
