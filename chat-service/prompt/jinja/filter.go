package jinja

import (
	"math"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// filters are all filters by name.
var filters map[string]filter

func init() { // a variable with this value would refer to itself
	filters = map[string]filter{
		"abs": abs, "attr": attr, "batch": batch, "capitalize": change(capitalize), "count": length, "d": orDefault,
		"default": orDefault, "dictsort": dictSort, "e": escape, "escape": escape, "first": first, "float": toFloat,
		"format": formatFilter, "from_json": fromJSON, "fromjson": fromJSON, "groupby": groupBy, "indent": indent, "int": toInt,
		"items": itemsFilter, "join": join, "last": last, "length": length, "list": toList, "lower": change(lower), "map": mapFilter,
		"max": extreme(1), "min": extreme(-1), "reject": choose(false, false), "rejectattr": choose(false, true),
		"replace": replaceFilter, "reverse": reverse, "round": round, "select": choose(true, false),
		"selectattr": choose(true, true), "slice": sliceFilter, "sort": sortFilter, "string": toText, "sum": sum,
		"title":  change(func(s string) string { return words(s, isBreak) }),
		"tojson": toJSON, "trim": trim, "truncate": truncate, "unique": unique, "upper": change(upper), "urlencode": urlEncode,
		"wordcount": wordCount,
		"safe":      func(r *run, v Value, _ actuals) Value { return markup(r.str(v)) },
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
		return as(strings.Trim(s, a.need(0, "chars")), isMarkup(v))
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
	switch v := v.(type) {
	case string, markup:
		s, _ := textOf(v)
		r.spend(len(s) / bytesPerStep)
		return utf8.RuneCountInString(s)
	case *List:
		return len(v.Items)
	case *tuple:
		return len(v.items)
	case *Dict:
		return v.Len()
	case view:
		return v.of.Len()
	case span:
		return v.len()
	case *undefined:
		return 0
	case *loopState:
		return v.length()
	}
	panic(unusable("%s has no length", typeName(v)))
}

func toList(r *run, v Value, _ actuals) Value { return &List{r.joined(r.items(v), nil)} }

func first(r *run, v Value, _ actuals) Value {
	switch s := v.(type) {
	case string, markup, span: // have no items before
	case *iterator:
		if len(s.items) > 0 {
			item := s.items[0]
			s.items = s.items[1:]
			return item
		}
	default:
		v = &List{r.items(v)}
	}
	if item, ok := at(v, 0); ok {
		return item
	}
	return &undefined{"No first item, sequence was empty."}
}

func last(r *run, v Value, _ actuals) Value {
	switch v.(type) {
	case *iterator:
		panic(unusable("%s cannot be read from its end", typeName(v)))
	case *Dict, view:
		v = &List{r.items(v)}
	}
	if item, ok := at(defined(v), -1); ok {
		return item
	}
	return &undefined{"No last item, sequence was empty."}
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
	if n := len(indention); n > 0 && len(all) > MaxOutput/n {
		panic(errOutput)
	}
	r.text(len(s) + len(all)*len(indention))
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
	return r.percent(r.str(v), &tuple{items: a.values}, isMarkup(v))
}

func truncate(r *run, v Value, a actuals) Value {
	s, limit, end := mustText(v), a.int(0, "length", 255), a.text(2, "end", "...")
	r.spend(len(s) / bytesPerStep)
	if utf8.RuneCountInString(s) <= limit+a.int(3, "leeway", 5) {
		return v
	}
	s = s[:max(offset(s, max(limit-utf8.RuneCountInString(end), 0)), 0)]
	if i := strings.LastIndexByte(s, ' '); i >= 0 && !a.flag(1, "killwords") {
		s = s[:i]
	}
	return s + end
}

func wordCount(r *run, v Value, _ actuals) Value {
	return len(strings.FieldsFunc(r.str(v), func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsNumber(c) }))
}

func urlEncode(r *run, v Value, _ actuals) Value {
	quote := func(v Value, space, slash string) string {
		s := r.str(v)
		r.text(3 * len(s))
		return strings.NewReplacer("+", space, "%2F", slash).Replace(url.QueryEscape(s))
	}
	d, ok := v.(*Dict)
	if !ok {
		return quote(v, "%20", "/")
	}
	var pairs []string
	for i, v := range d.values {
		pairs = append(pairs, quote(d.key(i), "+", "%2F")+"="+quote(v, "+", "%2F"))
	}
	return strings.Join(pairs, "&")
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
	switch a.text(1, "method", "common") {
	case "ceil":
		return math.Ceil(f*scale) / scale
	case "floor":
		return math.Floor(f*scale) / scale
	}
	if _, isFloat := v.(float64); !isFloat && precision >= 0 {
		return v
	}
	if precision < 0 {
		return math.RoundToEven(f*scale) / scale
	}
	rounded, _ := parseFloat((&run{}).place(place{precision: itoa(precision), verb: "f"}, f))
	return rounded
}

func attr(r *run, v Value, a actuals) Value {
	name := a.need(0, "name")
	if _, isDict := v.(*Dict); isDict && !isDictAttribute(name) {
		return absent(v, name) // attr does not look at members
	}
	return r.attribute(v, name)
}

func itemsFilter(r *run, v Value, _ actuals) Value {
	if d, ok := v.(*Dict); ok {
		return &iterator{r.items(view{d, "items"}), "generator"}
	}
	if isUndefined(v) {
		return &iterator{nil, "generator"}
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
	if _, ok := v.(*iterator); ok {
		return &List{reversed}
	}
	return &iterator{reversed, "list_reverseiterator"}
}
