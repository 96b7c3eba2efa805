package schema

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"

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
	places, step, err := places(s, integer)
	if err != nil {
		return nil, err
	}
	low, high, err := limits(s)
	if err != nil {
		return nil, err
	}
	switch {
	case step != nil:
		return c.multiples(s, step, integer, low, high)
	case low == nil && high == nil && places == 0:
		return anyInteger, nil
	case low == nil && high == nil && places < 0:
		return anyNumber, nil
	}
	if err := c.take(s.node, numberParts); err != nil {
		return nil, err
	}
	one := grammar.Measure(grammar.Choice()) // no number
	if low == nil || high == nil || low.Value <= high.Value {
		one = numbersBetween(low, high, places)
	}
	switch {
	case one.Need() < grammar.Endless:
		return one, nil
	case places == 0:
		return nil, s.wrong("", "there is no whole number of at most %d digits within its bounds", maxDigits)
	case places > 0:
		return nil, s.wrong("", "there is no number of at most %d digits, %d of them after the point, within its bounds", maxDigits, places)
	default:
		return nil, s.wrong("", "there is no number of at most %d digits within its bounds", maxDigits)
	}
}

// places returns the maximum number of digits after the point, or -1 if there is no other bound than
// maxDigits, or the step between the numbers if it is no negative power of ten.
func places(s schema, integer bool) (int, *big.Rat, error) {
	raw, ok := s.is["multipleOf"]
	if !ok {
		if integer {
			return 0, nil, nil
		}
		return -1, nil, nil
	}
	var step float64
	if json.Unmarshal(raw, &step) != nil || step <= 0 {
		return 0, nil, s.wrong("multipleOf", "it must be a number above 0")
	}
	for n := range maxDigits {
		if power, err := strconv.ParseFloat(fmt.Sprintf("1e-%d", n), 64); err != nil || power != step {
			continue
		}
		if integer { // every whole number is a multiple
			return 0, nil, nil
		}
		return n, nil, nil
	}
	if step < math.Pow10(-maxDigits) {
		return 0, nil, s.wrong("multipleOf", "it has more than %d digits after the point", maxDigits)
	}
	return 0, exact(step), nil
}

// tighter returns the tighter of the schema's closed and open limit, or nil if it has neither.
func tighter(s schema, closed, open string, tighter func(a, b float64) bool) (*numberLimit, error) {
	var l *numberLimit
	for _, name := range []string{closed, open} {
		raw, ok := s.is[name]
		if !ok {
			continue
		}
		var v *float64 // null is not a number
		if json.Unmarshal(raw, &v) != nil || v == nil {
			return nil, s.wrong(name, "it must be a number")
		}
		if l == nil || tighter(*v, l.Value) || *v == l.Value { // of two equal limits the open one is tighter
			l = &numberLimit{Value: *v, Open: name == open}
		}
	}
	return l, nil
}
