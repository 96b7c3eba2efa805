package hfjinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/ardanlabs/jinja"
)

// maxNesting bounds the depth of a value that is written, because a namespace can contain itself.
const maxNesting = 100

var errNesting = fmt.Errorf("%w: a value is nested more than %d levels deep", ErrLimit, maxNesting)

// text returns Python's str of v.
func text(v jinja.Value) (string, error) {
	switch {
	case v.IsString():
		return v.AsString(), nil
	case v.IsUndefined():
		return "", nil
	}
	var b strings.Builder
	if err := repr(&b, v, 0); err != nil {
		return "", err
	}
	return b.String(), nil
}

// repr writes Python's repr of v.
func repr(b *strings.Builder, v jinja.Value, depth int) error {
	if depth > maxNesting {
		return errNesting
	}
	switch {
	case v.IsString():
		reprString(b, v.AsString())
	case v.IsFloat():
		b.WriteString(formatFloat(v.AsFloat()))
	case v.IsList():
		b.WriteByte('[')
		for i, item := range v.AsList().Items {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := repr(b, item, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case v.IsDict():
		b.WriteByte('{')
		for i, key := range v.AsDict().Keys {
			if i > 0 {
				b.WriteString(", ")
			}
			reprString(b, key)
			b.WriteString(": ")
			if err := repr(b, v.AsDict().Data[key], depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	default: // the library matches Python for None, booleans and integers
		b.WriteString(v.String())
	}
	return nil
}

func reprString(b *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			writeHex(b, 'x', 2, r)
		case r < 0x10000:
			writeHex(b, 'u', 4, r)
		default:
			writeHex(b, 'U', 8, r)
		}
	}
	b.WriteRune(quote)
}

func writeHex(b *strings.Builder, kind byte, digits int, r rune) {
	hex := strconv.FormatUint(uint64(r), 16)
	b.WriteByte('\\')
	b.WriteByte(kind)
	b.WriteString(strings.Repeat("0", digits-len(hex)) + hex)
}

// formatFloat formats f like Python: the shortest digits that parse back to f, always with a point
// or an exponent.
func formatFloat(f float64) string {
	switch abs := math.Abs(f); {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+"))
	case abs != 0 && (abs < 1e-4 || abs >= 1e16):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// elements returns the values that a loop over v yields.
func elements(v jinja.Value) ([]jinja.Value, error) {
	switch {
	case v.IsList():
		return v.AsList().Items, nil
	case v.IsDict():
		return stringValues(v.AsDict().Keys), nil
	case v.IsString():
		return stringValues(strings.Split(v.AsString(), "")), nil
	case v.IsUndefined():
		return nil, nil
	}
	return nil, unusable("%s is not iterable", typeName(v))
}

// stringValues returns ss as values.
func stringValues(ss []string) []jinja.Value {
	items := make([]jinja.Value, len(ss))
	for i, s := range ss {
		items[i] = jinja.NewString(s)
	}
	return items
}
