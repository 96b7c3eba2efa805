package hfjinja

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// A function is a callable of the library.
type function = func(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error)

// globals returns the global functions that the library lacks or gets wrong.
func (b *budget) globals(now func() time.Time) map[string]function {
	return map[string]function{
		"raise_exception": raise,
		"range":           b.boundedRange,
		"namespace":       b.namespace,
		"dict":            b.dict,
		"cycler":          b.cycler,
		"strftime_now": func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
			if len(args) != 1 || !args[0].IsString() {
				return jinja.Undefined(), errors.New("strftime_now takes one format")
			}
			text, err := strftime(now(), args[0].AsString())
			if err != nil {
				return jinja.Undefined(), err
			}
			return b.text(text)
		},
		"_hf_unsupported": func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
			return jinja.Undefined(), fmt.Errorf("%s is not supported", args[0].AsString())
		},
	}
}

// maxRaised bounds the message of a refusal, in bytes.
const maxRaised = 4 << 10

func raise(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 {
		return jinja.Undefined(), errors.New("raise_exception takes one message")
	}
	message, err := text(args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	if len(message) > maxRaised {
		message = strings.ToValidUTF8(message[:maxRaised], "") + "…"
	}
	return jinja.Undefined(), &RaisedError{Message: message}
}

func (b *budget) boundedRange(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	bounds := []int64{0, 0, 1}
	if len(args) < 1 || len(args) > 3 {
		return jinja.Undefined(), errors.New("range takes one to three numbers")
	}
	for i, arg := range args {
		if !arg.IsInt() {
			return jinja.Undefined(), errors.New("range takes integers")
		}
		if len(args) == 1 {
			i = 1
		}
		bounds[i] = arg.AsInt()
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return jinja.Undefined(), errors.New("range cannot step by 0")
	}
	var items []jinja.Value
	for n := start; step > 0 && n < stop || step < 0 && n > stop; n += step {
		if len(items) == maxRange {
			return jinja.Undefined(), fmt.Errorf("%w: a range of more than %d numbers", ErrLimit, maxRange)
		}
		items = append(items, jinja.NewInt(n))
	}
	return b.list(items)
}
