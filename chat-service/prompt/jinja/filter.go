package jinja

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// filters are all filters by name.
var filters map[string]filter

func init() { // a variable with this value would refer to itself
	filters = map[string]filter{
		"abs": abs, "attr": attr, "capitalize": change(capitalize), "count": length, "d": orDefault,
		"default": orDefault, "dictsort": dictSort, "e": escape, "escape": escape, "first": first, "float": toFloat,
		"format": formatFilter, "from_json": fromJSON, "fromjson": fromJSON, "groupby": groupBy, "indent": indent, "int": toInt,
		"items": itemsFilter, "join": join, "last": last, "length": length, "list": toList, "lower": change(lower), "map": mapFilter,
		"max": extreme(1), "min": extreme(-1), "reject": choose(false, false), "rejectattr": choose(false, true),
		"replace": replaceFilter, "reverse": reverse, "round": round, "select": choose(true, false),
		"selectattr": choose(true, true), "sort": sortFilter, "string": toText, "sum": sum,
		"title":  change(func(s string) string { return titled(s, isBreak) }),
		"tojson": toJSON, "trim": trim, "unique": unique, "upper": change(upper),
		"safe": func(r *run, v Value, _ actuals) Value { return markup(r.str(v)) },
	}
}

// isBreak reports whether a word ends at c for the filter title.
func isBreak(c rune) bool { return isSpace(c) || strings.ContainsRune("-({[<", c) }

// change returns the filter that changes a text.
func change(f func(string) string) filter {
	return func(r *run, v Value, _ actuals) Value {
		s := r.str(v)
		r.text(2 * len(s))
		return as(f(s), isMarkup(v))
	}
}

func trim(r *run, v Value, a actuals) Value {
	s := r.str(v)
	r.spend(len(s) / bytesPerStep)
	if a.value(0, "chars", nil) != nil {
		return as(strings.Trim(s, a.text(0, "chars")), isMarkup(v))
	}
	return as(strings.TrimFunc(s, isSpace), isMarkup(v))
}

func orDefault(_ *run, v Value, a actuals) Value {
	if isUndefined(v) || a.flag(1, "boolean") && !truth(v) {
		return a.value(0, "default_value", "")
	}
	return v
}

func toText(r *run, v Value, _ actuals) Value {
	if isMarkup(v) {
		return v
	}
	s := r.str(v)
	r.text(len(s))
	return s
}

func escape(r *run, v Value, _ actuals) Value { return r.escaped(v) }

func length(r *run, v Value, _ actuals) Value {
	if s, ok := textOf(v); ok {
		r.spend(len(s) / bytesPerStep)
		return utf8.RuneCountInString(s)
	}
	if st, ok := v.(*loopState); ok {
		return st.length()
	}
	n, ok := size(v)
	if !ok {
		panic(unusable("%s has no length", typeName(v)))
	}
	return n
}

func toList(r *run, v Value, _ actuals) Value { return NewList(r.joined(r.items(v), nil)...) }

func first(r *run, v Value, _ actuals) Value {
	l, ok := v.(*List)
	if ok && l.isLazy() && len(l.Items) > 0 {
		item := l.Items[0]
		l.Items = l.Items[1:]
		return item
	}
	return r.end(v, 0, "first")
}

func last(r *run, v Value, _ actuals) Value {
	if l, ok := v.(*List); ok && l.isLazy() {
		panic(unusable("%s cannot be read from its end", typeName(v)))
	}
	return r.end(v, -1, "last")
}

// end returns the first or the last item of a value.
func (r *run) end(v Value, i int, which string) Value {
	if _, ok := v.(span); !ok && !isText(v) {
		v = NewList(r.items(v)...)
	}
	if item, ok := at(v, i); ok {
		return item
	}
	return &absence{"No " + which + " item, sequence was empty."}
}

func join(r *run, v Value, a actuals) Value {
	separator, get := r.str(a.value(0, "d", "")), r.getter(a.value(1, "attribute", nil), nil)
	return r.capture(func() {
		for i, item := range r.items(v) {
			if i > 0 {
				r.writeValue(separator)
			}
			r.writeValue(get(item))
		}
	})
}

func replaceFilter(r *run, v Value, a actuals) Value {
	old, by := r.str(a.value(0, "old", nil)), r.str(a.value(1, "new", nil))
	return replace(r, r.str(v), actuals{values: []Value{old, by, a.int(2, "count", -1)}})
}

func indent(r *run, v Value, a actuals) Value {
	s, width := mustText(v), a.value(0, "width", 4)
	if n, ok := intOf(width); ok {
		width = r.repeat(" ", n)
	}
	indention := mustText(width)
	all := lines(s+"\n", false)
	r.text(len(s) + product(len(all), len(indention)))
	for i, line := range all {
		if i == 0 && a.flag(1, "first") || i > 0 && (line != "" || a.flag(2, "blank")) {
			all[i] = indention + line
		}
	}
	return as(strings.Join(all, "\n"), isMarkup(v))
}

func formatFilter(r *run, v Value, a actuals) Value {
	if len(a.named) > 0 {
		return r.percent(r.str(v), r.dict(actuals{names: a.names, named: a.named}), isMarkup(v))
	}
	return r.percent(r.str(v), newTuple(a.values...), isMarkup(v))
}

func abs(_ *run, v Value, _ actuals) Value {
	if f, ok := v.(float64); ok {
		return math.Abs(f)
	}
	n, ok := bigOf(v)
	if !ok {
		panic(unusable("abs needs a number, not %s", typeName(defined(v))))
	}
	return small(new(big.Int).Abs(n))
}

func toInt(_ *run, v Value, a actuals) Value {
	s, isText := textOf(defined(v))
	if n, ok := parseInt(s, a.int(1, "base", 10)); ok && isText {
		return n
	}
	if n, ok := bigOf(v); ok {
		return small(n)
	}
	f, ok := floatOf(v)
	if isText {
		f, ok = parseFloat(s)
	}
	if n, finite := truncated(f); ok && finite {
		return n
	}
	return a.value(0, "default", 0)
}

func toFloat(_ *run, v Value, a actuals) Value {
	f, ok := floatOf(defined(v))
	if s, isText := textOf(v); isText {
		f, ok = parseFloat(s)
	}
	if ok {
		return f
	}
	return a.value(0, "default", 0.0)
}

func round(_ *run, v Value, a actuals) Value {
	precision := a.int(0, "precision", 0)
	f, ok := floatOf(defined(v))
	if !ok || precision < -300 || precision > 300 {
		panic(unusable("round needs a number, not %s", typeName(v)))
	}
	scale := math.Pow(10, float64(precision))
	switch a.value(1, "method", nil) {
	case "ceil":
		return math.Ceil(f*scale) / scale
	case "floor":
		return math.Floor(f*scale) / scale
	}
	if n, isInt := bigOf(v); isInt && precision >= 0 {
		return small(n)
	}
	if precision < 0 {
		return math.RoundToEven(f*scale) / scale
	}
	rounded, _ := parseFloat(strconv.FormatFloat(f, 'f', precision, 64))
	return rounded
}

func attr(r *run, v Value, a actuals) Value {
	name := a.text(0, "name")
	if _, isDict := v.(*Dict); isDict && !isDictAttribute(name) {
		return absent(v, name) // attr does not look at members
	}
	return r.attribute(v, name)
}

// generator returns the result of a lazy filter.
func generator(items []Value) *List { return &List{Items: items, kind: kindGenerator} }

func itemsFilter(r *run, v Value, _ actuals) Value {
	if d, ok := v.(*Dict); ok {
		return generator(r.view(d, "items").Items)
	}
	if isUndefined(v) {
		return generator(nil)
	}
	panic(unusable("items needs a mapping, not %s", typeName(v)))
}

func reverse(r *run, v Value, _ actuals) Value {
	if s, ok := textOf(v); ok {
		back := -1
		return as(r.sliceText(s, [3]*int{2: &back}), isMarkup(v))
	}
	reversed := r.joined(r.items(v), nil)
	slices.Reverse(reversed)
	if l, ok := v.(*List); ok && l.isLazy() {
		return NewList(reversed...)
	}
	return &List{Items: reversed, kind: kindReversed}
}
