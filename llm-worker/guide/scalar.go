package guide

import (
	"encoding/json"
	"fmt"
)

var (
	null    = measure(literal("null"))
	boolean = measure(choice(literal("true"), literal("false")))
	text    = measure(sequence(literal(`"`), times(0, -1, character), literal(`"`)))
)

// character matches one character of a string: all of Unicode, escaped where necessary.
var character = func() *symbol {
	rest := oneOfBytes(0x80, 0xbf)
	return measure(choice(
		oneOfBytes(' ', '!', '#', '[', ']', '~'),
		sequence(literal(`\`), oneOfBytes('"', '"', '\\', '\\', 'b', 'b', 'f', 'f', 'n', 'n', 'r', 'r', 't', 't')),
		sequence(oneOfBytes(0xc2, 0xdf), rest),
		sequence(oneOfBytes(0xe0, 0xe0), oneOfBytes(0xa0, 0xbf), rest),
		sequence(oneOfBytes(0xe1, 0xec, 0xee, 0xef), rest, rest),
		sequence(oneOfBytes(0xed, 0xed), oneOfBytes(0x80, 0x9f), rest), // without surrogates
		sequence(oneOfBytes(0xf0, 0xf0), oneOfBytes(0x90, 0xbf), rest, rest),
		sequence(oneOfBytes(0xf1, 0xf3), rest, rest, rest),
		sequence(oneOfBytes(0xf4, 0xf4), oneOfBytes(0x80, 0x8f), rest, rest),
	))
}()

// anyValue matches any JSON value.
var anyValue = func() *symbol {
	v := choice()
	v.parts = []*symbol{
		list("{", sequence(text, colon, v), 0, -1, "}"), list("[", v, 0, -1, "]"), text, anyNumber, boolean, null,
	}
	return measure(v)
}()

// number returns the numbers within the schema's bounds.
func (c *compiler) number(s schema, integer bool) (*symbol, error) {
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
	one := measure(choice()) // no number
	if low == nil || high == nil || low.v <= high.v {
		one = interval(low, high, integer)
	}
	switch {
	case one.need < endless:
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
