package jinja

import (
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// repeat is Python's sequence * n, or nil if v is no sequence.
func (r *run) repeat(v Value, n int) Value {
	size, count := 0, max(n, 0)
	limited := func(part int) int {
		if size = part; size > 0 && count > valueSize*MaxOutput/size {
			panic(errOutput)
		}
		return size * count
	}
	switch v := v.(type) {
	case string, markup:
		s, _ := textOf(v)
		r.text(limited(len(s)))
		return as(strings.Repeat(s, count), isMarkup(v))
	case *List:
		r.make(limited(valueSize * len(v.Items)))
		return &List{slices.Repeat(v.Items, count)}
	case *tuple:
		r.make(limited(valueSize * len(v.items)))
		return &tuple{items: slices.Repeat(v.items, count)}
	}
	return nil
}

var percentPlace = regexp.MustCompile(`%(?:\((\w+)\))?([-+ #0]*)(\d{0,7})(?:\.(\d{0,3}))?([a-zA-Z%])`)

// percent is Python's format % values.
func (r *run) percent(format string, values Value, isMarkup bool) Value {
	list := []Value{values}
	if t, ok := values.(*tuple); ok {
		list = t.items
	}
	named, _ := values.(*Dict)
	next := 0
	if strings.Contains(percentPlace.ReplaceAllString(format, ""), "%") {
		panic(unusable("a format has a broken place"))
	}
	out := r.replaced(percentPlace, format, func(m []string) string {
		if m[5] == "%" {
			return "%"
		}
		v, ok := Value(nil), next < len(list)
		if named != nil && m[1] != "" {
			v, ok = named.Get(m[1])
		} else if ok {
			v = list[next]
			next++
		}
		if !ok {
			panic(unusable("a format has more places than values"))
		}
		if isMarkup && m[5] == "s" {
			v = string(r.escaped(v))
		}
		return r.place(place{flags: m[2], width: m[3], precision: m[4], verb: m[5]}, v)
	})
	if next < len(list) && named == nil {
		panic(unusable("a format has fewer places than values"))
	}
	return as(out, isMarkup)
}

// replaced returns s with the texts that f returns for the matches of a pattern.
func (r *run) replaced(pattern *regexp.Regexp, s string, f func(groups []string) string) string {
	return r.capture(func() {
		for s != "" {
			m := pattern.FindStringSubmatchIndex(s)
			if m == nil {
				break
			}
			r.writeValue(s[:m[0]])
			groups := make([]string, len(m)/2)
			for i := range groups {
				if m[2*i] >= 0 {
					groups[i] = s[m[2*i]:m[2*i+1]]
				}
			}
			r.writeValue(f(groups))
			s = s[m[1]:]
		}
		r.writeValue(s)
	})
}

// A place is a place of a format.
type place struct{ flags, width, precision, verb string }

// place formats a value. Go's verbs have the meaning of Python's types.
func (r *run) place(p place, v Value) string {
	format := "%" + p.flags + p.width
	if p.precision != "" {
		format += "." + p.precision
	}
	if n, _ := strconv.Atoi(p.width); n > MaxOutput {
		panic(errOutput)
	}
	switch p.verb {
	case "s":
		return fmt.Sprintf(format+"s", r.str(v))
	case "r":
		return fmt.Sprintf(format+"s", r.repr(nil, v, 0))
	case "d", "i", "u", "x", "X", "o":
		if f, ok := v.(float64); ok && p.verb != "x" && p.verb != "X" && p.verb != "o" {
			v, _ = truncated(f)
		}
		n, ok := bigOf(v)
		if !ok {
			panic(unusable("a format needs an integer, not %s", typeName(v)))
		}
		return fmt.Sprintf(format+map[string]string{"i": "d", "u": "d"}[p.verb]+strings.Trim(p.verb, "iu"), n)
	case "f", "F", "e", "E", "g", "G":
		f, ok := floatOf(v)
		if !ok {
			panic(unusable("a format needs a number, not %s", typeName(v)))
		}
		if p.precision == "" {
			format += ".6"
		}
		return fmt.Sprintf(format+p.verb, f)
	}
	panic(unusable("a format has a place of an unknown type"))
}

var bracePlace = regexp.MustCompile(`\{\{|\}\}|\{(\w*)((?:\.\w+|\[[^\]]*\])*)(?:!([rs]))?(?::((.)?([<>^]))?([-+ ]?)(#?)(0?)(\d{0,7})(,?)(?:\.(\d{1,3}))?([a-zA-Z%]?))?\}`)

func formatMethod(r *run, s string, a actuals) Value {
	if strings.ContainsAny(bracePlace.ReplaceAllString(s, ""), "{}") {
		panic(unusable("a format has a broken place"))
	}
	next := 0
	return r.replaced(bracePlace, s, func(m []string) string {
		if m[0] == "{{" || m[0] == "}}" {
			return m[0][:1]
		}
		at := next
		if n, err := strconv.Atoi(m[1]); err == nil {
			at = n
		} else if m[1] == "" {
			next++
		} else {
			at = len(a.values)
		}
		v, ok := a.get(at, m[1])
		if !ok {
			panic(unusable("a format has more places than values"))
		}
		for accessors := m[2]; accessors != ""; {
			end := strings.IndexAny(accessors[1:], ".[") + 1
			if end == 0 {
				end = len(accessors)
			}
			name := strings.TrimSuffix(accessors[1:end], "]")
			if n, err := strconv.Atoi(name); err == nil && accessors[0] == '[' {
				v = r.element(v, n)
			} else {
				v = r.element(v, name)
			}
			accessors = accessors[end:]
		}
		if m[3] == "r" {
			v = string(r.repr(nil, v, 0))
		}
		return r.braced(m, v)
	})
}

// braced formats a value for a place of str.format with the groups of bracePlace.
func (r *run) braced(m []string, v Value) string {
	verb, isNumber := m[13], false
	switch v.(type) {
	case int, *big.Int, float64:
		isNumber = true
	}
	p := place{flags: m[7] + m[8], precision: m[12], verb: verb}
	if _, isFloat := v.(float64); verb == "" && isFloat && m[12] != "" {
		p.verb = "g"
	} else if verb == "" && isNumber && !isFloat {
		p.verb = "d"
	} else if verb == "" {
		p.verb = "s"
	}
	if verb == "%" {
		f, _ := floatOf(v)
		v, p.verb = 100*f, "f"
	}
	if m[9] != "" && m[4] == "" {
		p.flags, p.width = p.flags+"0", m[10]
	}
	text := r.place(p, v)
	if verb == "%" {
		text += "%"
	}
	if m[11] != "" { // commas between the thousands
		whole, fraction, _ := strings.Cut(text, ".")
		for i := len(whole) - 3; i > 0 && isDigit(whole[i-1]); i -= 3 {
			whole = whole[:i] + "," + whole[i:]
		}
		text = strings.TrimSuffix(whole+"."+fraction, ".")
	}
	width, _ := strconv.Atoi(m[10])
	missing := max(width-utf8.RuneCountInString(text), 0)
	if missing > MaxOutput {
		panic(errOutput)
	}
	fill, before := m[5], 0
	if fill == "" {
		fill = " "
	}
	switch {
	case m[6] == ">" || m[6] == "" && isNumber:
		before = missing
	case m[6] == "^":
		before = missing / 2
	}
	return strings.Repeat(fill, before) + text + strings.Repeat(fill, missing-before)
}
