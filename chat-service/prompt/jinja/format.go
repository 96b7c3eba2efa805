package jinja

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// repeat is Python's sequence * n, or nil if v is no sequence.
func (r *run) repeat(v Value, n int) Value {
	n = max(n, 0)
	if s, isText := textOf(v); isText {
		r.text(product(n, len(s)))
		return as(strings.Repeat(s, n), isMarkup(v))
	}
	list, ok := v.(*List)
	if !ok || !list.hasElements() {
		return nil
	}
	r.list(product(n, len(list.Items)))
	return &List{Items: slices.Repeat(list.Items, n), kind: list.kind}
}

var (
	percentPlace = regexp.MustCompile(`%(?:\((\w+)\))?([-+ #0]*)(\d{0,7})(\.\d{1,3})?([a-zA-Z%])`)
	bracePlace   = regexp.MustCompile(`\{\{|\}\}|\{(\w*)(?:!([rs]))?(?::([<>]?)([+ ]?#?0?)(\d{0,7})(\.\d{1,3})?([a-zA-Z]?))?\}`)
)

// replaced returns s with each match of a pattern replaced by the text that f returns for it. The text
// between matches must have none of the characters in marks.
func (r *run) replaced(s string, pattern *regexp.Regexp, marks string, f func(groups []string) string) string {
	return r.capture(func() {
		for {
			m := pattern.FindStringSubmatchIndex(s)
			before, groups := s, []string(nil)
			if m != nil {
				before, groups = s[:m[0]], pattern.FindStringSubmatch(s)
			}
			if strings.ContainsAny(before, marks) {
				panic(unusable("a format has a place that is broken or not supported"))
			}
			if r.writeValue(before); m == nil {
				return
			}
			r.writeValue(f(groups))
			s = s[m[1]:]
		}
	})
}

// percent is Python's format % values.
func (r *run) percent(format string, values Value, isMarkup bool) Value {
	list := []Value{values}
	t, isTuple := values.(*List)
	if isTuple = isTuple && t.kind == kindTuple; isTuple {
		list = t.Items
	}
	named, _ := values.(*Dict)
	next := 0
	out := r.replaced(format, percentPlace, "%", func(m []string) string {
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
		return r.place(m[2]+m[3], m[4], m[5], v)
	})
	_, isText := textOf(values)
	if next < len(list) && (isTuple || isText || values == nil || isNumber(values)) {
		panic(unusable("a format has fewer places than values"))
	}
	return as(out, isMarkup)
}

// place formats a value. Go's verbs have the meaning of Python's types.
func (r *run) place(width, precision, verb string, v Value) string {
	switch verb {
	case "s":
		return fmt.Sprintf("%"+width+precision+"s", r.str(v))
	case "r":
		return fmt.Sprintf("%"+width+precision+"s", r.repr(nil, v, 0))
	case "d", "i", "x", "X", "o":
		if f, ok := v.(float64); ok && (verb == "d" || verb == "i") {
			v, _ = truncated(f)
		}
		if n, ok := bigOf(v); ok {
			return fmt.Sprintf("%"+width+strings.Replace(verb, "i", "d", 1), n)
		}
	case "f", "F", "e", "E", "g", "G":
		if precision == "" {
			precision = ".6"
		}
		if f, ok := floatOf(v); ok {
			return fmt.Sprintf("%"+width+precision+verb, f)
		}
	}
	panic(unusable("a format has no place for %s, or an unknown type", typeName(v)))
}

// formatMethod is Python's str.format, without accessors and fills.
func formatMethod(r *run, s string, a actuals) Value {
	next := -1
	return r.replaced(s, bracePlace, "{}", func(m []string) string {
		if m[0] == "{{" || m[0] == "}}" {
			return m[0][:1]
		}
		at, err := strconv.Atoi(m[1])
		if m[1] == "" {
			next++
			at = next
		} else if err != nil {
			at = len(a.values)
		}
		v, ok := a.get(at, m[1])
		if !ok {
			panic(unusable("a format has more places than values"))
		}
		if m[2] == "r" {
			v = string(r.repr(nil, v, 0))
		}
		_, isFloat := v.(float64)
		verb, left := m[7], m[3] == "<" || m[3] == "" && !isNumber(v)
		switch {
		case verb == "" && isFloat && m[6] != "":
			verb = "g"
		case verb == "":
			verb = "s"
		}
		if left {
			m[4] += "-"
		}
		return r.place(m[4]+m[5], m[6], verb, v)
	})
}
