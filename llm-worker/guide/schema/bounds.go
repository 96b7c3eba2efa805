package schema

import (
	"encoding/json"
	"math/big"
	"strconv"
	"unicode/utf8"

	"github.com/whence-dev/whence/llm-worker/guide/pattern"
)

// bounds reports whether a value is valid under the keywords of strings and numbers of s.
func (s schema) bounds(v any) (bool, error) {
	switch v := v.(type) {
	case string:
		return s.boundsText(v)
	case float64:
		return s.boundsNumber(v)
	default:
		return true, nil
	}
}

func (s schema) boundsText(v string) (bool, error) {
	least, most, err := bounds(s, "minLength", "maxLength")
	if err != nil {
		return false, err
	}
	if n := utf8.RuneCountInString(v); n < least || most >= 0 && n > most {
		return false, nil
	}
	if raw, ok := s.is["pattern"]; ok {
		var expression string
		if json.Unmarshal(raw, &expression) != nil {
			return false, s.wrong("pattern", "it must be a string")
		}
		match, err := pattern.Match(expression)
		if err != nil {
			return false, s.wrong("pattern", "%v", err)
		}
		if !match(v) {
			return false, nil
		}
	}
	if form := formatOf(s); form != nil {
		match, err := pattern.Match(form.Expression)
		if err != nil {
			return false, s.wrong("format", "%v", err)
		}
		return match(v), nil
	}
	return true, nil
}

func (s schema) boundsNumber(v float64) (bool, error) {
	low, err := tighter(s, "minimum", "exclusiveMinimum", func(a, b float64) bool { return a > b })
	if err != nil {
		return false, err
	}
	high, err := tighter(s, "maximum", "exclusiveMaximum", func(a, b float64) bool { return a < b })
	if err != nil {
		return false, err
	}
	if low != nil && (v < low.Value || v == low.Value && low.Open) || high != nil && (v > high.Value || v == high.Value && high.Open) {
		return false, nil
	}
	raw, ok := s.is["multipleOf"]
	if !ok {
		return true, nil
	}
	step, known := new(big.Rat).SetString(string(raw))
	value, exact := new(big.Rat).SetString(strconv.FormatFloat(v, 'f', -1, 64))
	if !known || !exact || step.Sign() <= 0 {
		return false, s.wrong("multipleOf", "it must be a number above 0")
	}
	return value.Quo(value, step).IsInt(), nil
}
