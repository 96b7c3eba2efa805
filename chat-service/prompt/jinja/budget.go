package jinja

import (
	"context"
	"fmt"
	"math/big"

	"github.com/whence-dev/whence/pkg/stream"
)

// The limits of a render. A template comes with its model and is not trusted, and a conversation is
// a client's; both together must not keep a process busy for ever, or take its memory.
const (
	// MaxOutput bounds the output of a render and every text, in bytes.
	MaxOutput = 16 << 20
	// A render takes at most baseSteps steps, and stepsPerByte for each byte of its variables. A step
	// takes 10 to 100 ns. A template with loops over all later messages within a loop over the
	// messages takes some hundred steps a byte for a thousand messages.
	baseSteps    = 4 << 20
	stepsPerByte = 1 << 10
	// A render makes at most baseMade bytes of values, and madePerByte for each byte of its variables,
	// but never more than maxMade.
	baseMade    = 256 << 20
	madePerByte = 64
	maxMade     = 1 << 30

	bytesPerStep = 64 // of a text that is searched or copied
	valueSize    = 40 // bytes of a value in a list, without its contents
	maxDepth     = 200
	maxRange     = 100_000 // as in Jinja2's sandbox
	stepsPerLook = 1 << 12 // after which a render looks at its context
)

var errOutput = limitError("a text of more than %d bytes", MaxOutput)

// limitError returns an error that wraps ErrLimit.
func limitError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrLimit}, args...)...)
}

// A budget counts what a render may still use. Its methods end the render by a panic with an error.
type budget struct {
	ctx   context.Context //nolint:containedctx // of one render
	fuel  int             // steps until the next look at ctx
	steps int             // after these
	made  int             // bytes
	depth int             // of calls
}

// newBudget returns the budget of a render with variables.
func newBudget(ctx context.Context, variables map[string]Value) budget {
	size := 0
	for _, v := range variables {
		size += weigh(v, 0)
	}
	return budget{ctx: ctx, steps: baseSteps + stepsPerByte*size, made: min(baseMade+madePerByte*size, maxMade)}
}

// weigh returns the size of a variable in bytes.
func weigh(v Value, depth int) int {
	size := valueSize
	if depth > maxNesting {
		return size
	}
	switch v := v.(type) {
	case string:
		size += len(v)
	case *big.Int:
		size += v.BitLen() / 8
	case *List:
		for _, item := range v.Items {
			size += weigh(item, depth+1)
		}
	case *Dict:
		for i, key := range v.keys {
			size += len(key) + weigh(v.values[i], depth+1)
		}
	}
	return size
}

// spend counts n steps.
func (b *budget) spend(n int) {
	if b.fuel -= n; b.fuel < 0 {
		b.look()
	}
}

// look ends a render that has been stopped or has no steps left.
func (b *budget) look() {
	if cause := stream.Cause(b.ctx); cause != nil {
		panic(stopCause{cause})
	}
	b.steps += b.fuel - stepsPerLook
	b.fuel = stepsPerLook
	if b.steps < 0 {
		panic(limitError("the template takes more steps than a conversation of this size may take; shorten the conversation, or see whether a loop of the template has no end"))
	}
}

// A stopCause is the cause for which a render was stopped.
type stopCause struct{ error }

// make counts a value of n bytes that is made of other values.
func (b *budget) make(n int) {
	if b.made -= n; b.made < 0 {
		panic(limitError("the template makes more values than a conversation of this size may take; shorten the conversation"))
	}
	b.spend(n / bytesPerStep)
}

// text counts a text of n bytes, before it is made.
func (b *budget) text(n int) {
	if n > MaxOutput {
		panic(errOutput)
	}
	b.make(n)
}

// product returns n * size, which may not exceed the largest text.
func product(n, size int) int {
	if size > 0 && n > MaxOutput/size {
		panic(errOutput)
	}
	return n * size
}

// list counts a list of n items, before it is made.
func (b *budget) list(n int) { b.make(valueSize * n) }

// enter counts the start of a call, and leave its end.
func (b *budget) enter() {
	if b.depth++; b.depth > maxDepth {
		panic(limitError("more than %d nested calls", maxDepth))
	}
}

func (b *budget) leave() { b.depth-- }
