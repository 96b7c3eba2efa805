package schema

import (
	"math/big"
	"strconv"
	"unicode/utf8"

	"github.com/whence-dev/whence/llm-worker/guide/pattern"
)

// bounded returns a function that reports whether a value is valid under the keywords of strings and
// numbers of s. Other values are.
func (c *Compiler) bounded(s schema) (func(v any) bool, error) {
	text, err := c.boundedText(s)
	if err != nil {
		return nil, err
	}
	num, err := s.boundedNumber()
	if err != nil {
		return nil, err
	}
	return func(v any) bool {
		switch v := v.(type) {
		case string:
			return text(v)
		case float64:
			return num(v)
		default:
			return true
		}
	}, nil
}

func (c *Compiler) boundedText(s schema) (func(v string) bool, error) {
	least, most, err := bounds(s, "minLength", "maxLength")
	if err != nil {
		return nil, err
	}
	all, keyword, err := s.conditions()
	if err != nil {
		return nil, err
	}
	var matches []func(text string) bool
	for _, condition := range all {
		one, err := pattern.Match(condition.Expression, &c.patterns)
		if err != nil {
			return nil, s.wrong(keyword, "%v", err)
		}
		matches = append(matches, one)
	}
	return func(v string) bool {
		if n := utf8.RuneCountInString(v); n < least || most >= 0 && n > most {
			return false
		}
		for _, match := range matches {
			if !match(v) {
				return false
			}
		}
		return true
	}, nil
}

func (s schema) boundedNumber() (func(v float64) bool, error) {
	low, high, err := limits(s)
	if err != nil {
		return nil, err
	}
	places, step, err := places(s, false)
	if err != nil {
		return nil, err
	}
	if step == nil && places >= 0 {
		step = exact(1)
		for range places {
			step.Quo(step, exact(10))
		}
	}
	return func(v float64) bool {
		if low != nil && (v < low.Value || v == low.Value && low.Open) || high != nil && (v > high.Value || v == high.Value && high.Open) {
			return false
		}
		return step == nil || new(big.Rat).Quo(exact(v), step).IsInt()
	}, nil
}

// limits returns the bounds of the numbers of s; nil for none.
func limits(s schema) (low, high *numberLimit, err error) {
	if low, err = tighter(s, "minimum", "exclusiveMinimum", func(a, b float64) bool { return a > b }); err != nil {
		return nil, nil, err
	}
	high, err = tighter(s, "maximum", "exclusiveMaximum", func(a, b float64) bool { return a < b })
	return low, high, err
}

// exact returns the shortest decimal that a float64 stands for.
func exact(v float64) *big.Rat {
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(v, 'f', -1, 64))
	if !ok { // not a number
		return new(big.Rat)
	}
	return r
}
