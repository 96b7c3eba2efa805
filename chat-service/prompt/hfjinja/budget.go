package hfjinja

import (
	"errors"
	"fmt"

	"github.com/ardanlabs/jinja"
)

const (
	// MaxOutput bounds the output of a render, in bytes. The text of a macro counts again where its
	// result is written.
	MaxOutput = 16 << 20
	// maxJoined bounds the bytes that + and ~ write. A template that appends each message to the
	// previous ones writes a quadratic number of bytes, and nothing can interrupt it.
	maxJoined = 256 << 20
	valueSize = 24 // bytes of a list element
	maxSteps  = 1 << 20
	maxDepth  = 200
	maxRange  = 100_000 // as in Jinja2's sandbox
)

// A budget counts what one render has used. The translation inserts the calls by which the template
// reports to it.
type budget struct {
	written, joined, steps, depth int
}

// register adds the functions that the template uses to vars.
func (b *budget) register(vars map[string]jinja.Value, used map[string]bool) {
	add := func(name string, fn function) {
		if used[name] {
			vars[name] = jinja.NewCallable(name, fn)
		}
	}
	add("_hf_out", b.out)
	add("_hf_step", b.step)
	add("_hf_enter", b.enter)
	add("_hf_leave", b.leave)
	add("_hf_add", b.add)
	add("_hf_concat", b.concat)
}

func (b *budget) write(n int) error {
	if b.written += n; b.written > MaxOutput {
		return fmt.Errorf("%w: more than %d bytes of output", ErrLimit, MaxOutput)
	}
	return nil
}

// join counts a value of n bytes that was composed from other values.
func (b *budget) join(n int) error {
	if n > MaxOutput {
		return fmt.Errorf("%w: a value of more than %d bytes", ErrLimit, MaxOutput)
	}
	if b.joined += n; b.joined > maxJoined {
		return fmt.Errorf("%w: more than %d bytes in values that are made of others", ErrLimit, maxJoined)
	}
	return nil
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
		return args[0], nil
	}
	return jinja.NewString(text), nil
}

// step counts an iteration of a loop, or a call block. The argument is the size of its literal text
// in bytes.
func (b *budget) step(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if b.steps++; b.steps > maxSteps {
		return jinja.Undefined(), fmt.Errorf("%w: more than %d loop steps", ErrLimit, maxSteps)
	}
	return nothing, b.write(int(args[0].AsInt()))
}

// enter counts the start of a macro call, and leave its end.
func (b *budget) enter(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if b.depth++; b.depth > maxDepth {
		return jinja.Undefined(), fmt.Errorf("%w: more than %d nested macro calls", ErrLimit, maxDepth)
	}
	return b.step(args, nil)
}

func (b *budget) leave([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	b.depth--
	return nothing, nil
}

var nothing = jinja.NewString("")
