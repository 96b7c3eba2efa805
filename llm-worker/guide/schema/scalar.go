package schema

import (
	"encoding/json"
	"fmt"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

var (
	null    = grammar.Measure(grammar.Literal("null"))
	boolean = grammar.Measure(grammar.Choice(grammar.Literal("true"), grammar.Literal("false")))
	text    = grammar.Measure(quoted(grammar.Run(grammar.Characters, 0, -1)))
)

// quoted matches a string with this content.
func quoted(content *grammar.Symbol) *grammar.Symbol {
	return grammar.Sequence(grammar.Byte('"'), content, grammar.Byte('"'))
}

// anyValue matches any JSON value.
var anyValue = func() *grammar.Symbol {
	v := grammar.Choice()
	v.Or(list("{", grammar.Sequence(text, colon, v), 0, -1, "}"), list("[", v, 0, -1, "]"), text, anyNumber, boolean, null)
	return grammar.Measure(v)
}()

// number returns the numbers within the schema's bounds.
func (c *Compiler) number(s schema, integer bool) (*grammar.Symbol, error) {
	low, err := tighter(s, "minimum", "exclusiveMinimum", func(a, b float64) bool { return a > b })
	if err != nil {
		return nil, err
	}
	high, err := tighter(s, "maximum", "exclusiveMaximum", func(a, b float64) bool { return a < b })
	if err != nil {
		return nil, err
	}
	switch {
	case low == nil && high == nil && integer:
		return anyInteger, nil
	case low == nil && high == nil:
		return anyNumber, nil
	}
	if err := c.take(numberParts); err != nil {
		return nil, err
	}
	one := grammar.Measure(grammar.Choice()) // no number
	if low == nil || high == nil || low.v <= high.v {
		one = interval(low, high, integer)
	}
	switch {
	case one.Need() < grammar.Endless:
		return one, nil
	case integer:
		return nil, fmt.Errorf("there is no whole number of at most %d digits within its bounds", maxDigits)
	default:
		return nil, fmt.Errorf("there is no number of at most %d digits within its bounds", maxDigits)
	}
}

// tighter returns the tighter of the schema's closed and open limit, or nil if it has neither.
func tighter(s schema, closed, open string, tighter func(a, b float64) bool) (*limit, error) {
	var l *limit
	for _, name := range []string{closed, open} {
		raw, ok := s[name]
		if !ok {
			continue
		}
		var v *float64 // null is not a number
		if json.Unmarshal(raw, &v) != nil || v == nil {
			return nil, fmt.Errorf("%s must be a number", name)
		}
		if l == nil || tighter(*v, l.v) || *v == l.v { // of two equal limits the open one is tighter
			l = &limit{*v, name == open}
		}
	}
	return l, nil
}
