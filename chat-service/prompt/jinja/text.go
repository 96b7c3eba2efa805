package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// str is Python's str of a value.
func (r *run) str(v Value) string {
	if s, ok := textOf(v); ok || isUndefined(v) {
		return s
	}
	return string(r.repr(nil, v, 0))
}

// repr appends Python's repr of a value.
func (r *run) repr(b []byte, v Value, depth int) []byte {
	if nested(depth); len(b) > MaxOutput {
		panic(errOutput)
	}
	switch v := v.(type) {
	case nil:
		return append(b, "None"...)
	case bool:
		if v {
			return append(b, "True"...)
		}
		return append(b, "False"...)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case *big.Int:
		return v.Append(b, 10)
	case float64:
		return append(b, formatFloat(v)...)
	case string:
		return appendQuoted(b, v)
	case markup:
		return append(appendQuoted(append(b, "Markup("...), string(v)), ')')
	case *List:
		switch {
		case v.kind == "":
			return r.reprItems(b, "[", v.Items, "]", depth)
		case v.kind == kindTuple && len(v.Items) == 1:
			return r.reprItems(b, "(", v.Items, ",)", depth)
		case v.kind == kindTuple:
			return r.reprItems(b, "(", v.Items, ")", depth)
		case !v.isLazy(): // a view
			return r.reprItems(append(b, v.kind...), "([", v.Items, "])", depth)
		}
	case *Dict:
		b = append(b, '{')
		for i := range v.keys {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = r.repr(b, v.key(i), depth+1)
			b = r.repr(append(b, ": "...), v.values[i], depth+1)
		}
		return append(b, '}')
	case *namespace:
		return append(r.repr(append(b, "<Namespace "...), v.attrs, depth+1), '>')
	case span:
		b = append(b, "range("+strconv.Itoa(v.start)+", "+strconv.Itoa(v.stop)...)
		if v.step != 1 {
			b = append(b, ", "+strconv.Itoa(v.step)...)
		}
		return append(b, ')')
	case *absence:
		return append(b, "Undefined"...)
	case *macro:
		return append(b, "<Macro '"+v.of.name+"'>"...)
	}
	return append(b, "<"+typeName(v)+">"...)
}

func (r *run) reprItems(b []byte, opening string, items []Value, closing string, depth int) []byte {
	b = append(b, opening...)
	for i, item := range items {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = r.repr(b, item, depth+1)
	}
	return append(b, closing...)
}

func appendQuoted(b []byte, s string) []byte {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b = append(b, byte(quote))
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n' || c == '\r' || c == '\t':
			b = append(b, '\\', shortEscapes[c])
		case unicode.IsPrint(c):
			b = append(b, string(c)...)
		case c < 0x100:
			b = appendHex(b, 'x', 2, c)
		case c < 0x10000:
			b = appendHex(b, 'u', 4, c)
		default:
			b = appendHex(b, 'U', 8, c)
		}
	}
	return append(b, byte(quote))
}

// appendHex appends an escape such as \u00e9.
func appendHex(b []byte, kind byte, digits int, c rune) []byte {
	b = append(b, '\\', kind)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[c>>shift&0xf])
	}
	return b
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

var htmlEscapes = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escaped returns the HTML of a value: a markup unchanged, and everything else escaped.
func (r *run) escaped(v Value) markup {
	if m, ok := v.(markup); ok {
		return m
	}
	s := r.str(v)
	r.text(6 * len(s))
	return markup(htmlEscapes.Replace(s))
}
