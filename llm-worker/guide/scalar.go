package guide

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

var (
	null    = measure(literal("null"))
	boolean = measure(choice(literal("true"), literal("false")))
	text    = measure(sequence(literal(`"`), times(0, -1, character), literal(`"`)))

	digit    = oneOfBytes('0', '9')
	fraction = measure(sequence(literal("."), times(1, maxDigits, digit)))
	// natural is a number without sign.
	natural = measure(choice(literal("0"), sequence(oneOfBytes('1', '9'), times(0, maxDigits-1, digit))))

	anyNumber = measure(sequence(optional(literal("-")), natural, optional(fraction)))
)

// maxDigits is as many as every reader takes exactly.
const maxDigits = 15

const largest = 999_999_999_999_999

// character is one of a string: all of Unicode, escaped where it must be.
var character = func() *symbol {
	rest := oneOfBytes(0x80, 0xbf)
	return measure(choice(
		oneOfBytes(' ', '!', '#', '[', ']', '~'),
		sequence(literal(`\`), oneOfBytes('"', '"', '\\', '\\', 'b', 'b', 'f', 'f', 'n', 'n', 'r', 'r', 't', 't')),
		sequence(oneOfBytes(0xc2, 0xdf), rest),
		sequence(oneOfBytes(0xe0, 0xe0), oneOfBytes(0xa0, 0xbf), rest),
		sequence(oneOfBytes(0xe1, 0xec, 0xee, 0xef), rest, rest),
		sequence(oneOfBytes(0xed, 0xed), oneOfBytes(0x80, 0x9f), rest), // no surrogates
		sequence(oneOfBytes(0xf0, 0xf0), oneOfBytes(0x90, 0xbf), rest, rest),
		sequence(oneOfBytes(0xf1, 0xf3), rest, rest, rest),
		sequence(oneOfBytes(0xf4, 0xf4), oneOfBytes(0x80, 0x8f), rest, rest),
	))
}()

// anyValue is any JSON.
var anyValue = func() *symbol {
	v := choice()
	v.parts = []*symbol{
		list("{", sequence(text, colon, v), 0, -1, "}"), list("[", v, 0, -1, "]"), text, anyNumber, boolean, null,
	}
	return measure(v)
}()

// number is one within the schema's bounds.
func (c *compiler) number(s schema, integer bool) (*symbol, error) {
	low, high, bounded := float64(-largest), float64(largest), false
	for name, tighten := range map[string]func(v float64){
		"minimum":          func(v float64) { low = max(low, math.Ceil(v)) },
		"maximum":          func(v float64) { high = min(high, math.Floor(v)) },
		"exclusiveMinimum": func(v float64) { low = max(low, math.Floor(v)+1) },
		"exclusiveMaximum": func(v float64) { high = min(high, math.Ceil(v)-1) },
	} {
		raw, ok := s[name]
		if !ok {
			continue
		}
		var v float64
		if json.Unmarshal(raw, &v) != nil {
			return nil, fmt.Errorf("%s must be a number", name)
		}
		tighten(v)
		bounded = true
	}
	if low > high {
		return nil, errors.New("there is no whole number within its bounds")
	}
	if bounded {
		if err := c.take(numberParts); err != nil {
			return nil, err
		}
		return within(int64(low), int64(high), integer), nil
	}
	if integer {
		return sequence(optional(literal("-")), natural), nil
	}
	return anyNumber, nil
}

// within is the numbers from low to high; of fractions those whose next whole number is within, too.
func within(low, high int64, integer bool) *symbol {
	one := choice()
	if high >= 0 {
		one.parts = append(one.parts, between(max(low, 0), high))
		if !integer && high > max(low, 0) {
			one.parts = append(one.parts, sequence(between(max(low, 0), high-1), fraction))
		}
	}
	if low < 0 {
		least := max(-high, 1)
		one.parts = append(one.parts, sequence(literal("-"), between(least, -low)))
		if least = max(-high, 0); !integer && -low > least {
			one.parts = append(one.parts, sequence(literal("-"), between(least, -low-1), fraction))
		}
	}
	return one
}

// between is the whole numbers from low to high, neither negative.
func between(low, high int64) *symbol {
	one := choice()
	for from := low; ; {
		first := strconv.FormatInt(from, 10)
		last := strings.Repeat("9", len(first))
		to, err := strconv.ParseInt(last, 10, 64)
		if err != nil || to >= high {
			one.parts = append(one.parts, sameLength(first, strconv.FormatInt(high, 10)))
			return one
		}
		one.parts = append(one.parts, sameLength(first, last))
		from = to + 1
	}
}

// sameLength is the strings of digits from low to high, which are as long as they are.
func sameLength(low, high string) *symbol {
	if low == "" {
		return sequence()
	}
	if low[0] == high[0] {
		return sequence(single[low[0]], sameLength(low[1:], high[1:]))
	}
	n := len(low) - 1
	if strings.Trim(low, "0") == "" && strings.Trim(high, "9") == "" {
		return times(n+1, n+1, digit)
	}
	one := choice(
		sequence(single[low[0]], sameLength(low[1:], strings.Repeat("9", n))),
		sequence(single[high[0]], sameLength(strings.Repeat("0", n), high[1:])),
	)
	if high[0]-low[0] > 1 {
		one.parts = append(one.parts, sequence(oneOfBytes(low[0]+1, high[0]-1), times(n, n, digit)))
	}
	return one
}
