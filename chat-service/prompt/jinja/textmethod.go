package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// textMethods are the methods of texts.
var textMethods map[string]method

func init() { // a variable with this value would refer to itself
	textMethods = map[string]method{
		"strip": strips(strings.TrimFunc), "lstrip": strips(strings.TrimLeftFunc), "rstrip": strips(strings.TrimRightFunc),
		"split": onText(split), "rsplit": onText(rsplit), "replace": onText(replace), "format": onText(formatMethod),
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
		"find": search(strings.Index, -1), "rfind": search(strings.LastIndex, -1),
		"index": search(strings.Index, 0), "rindex": search(strings.LastIndex, 0),
		"upper": changes(upper), "lower": changes(lower), "title": changes(title), "capitalize": changes(capitalize),
		"isalpha": every(unicode.IsLetter), "isdigit": every(unicode.IsDigit), "isdecimal": every(unicode.IsDigit),
		"isnumeric": every(unicode.IsNumber), "isspace": every(isSpace),
		"isalnum":      every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"islower":      onText(func(_ *run, s string, _ actuals) Value { return cased(s, unicode.IsLower, unicode.IsUpper) }),
		"isupper":      onText(func(_ *run, s string, _ actuals) Value { return cased(s, unicode.IsUpper, unicode.IsLower) }),
		"removeprefix": onText(func(_ *run, s string, a actuals) Value { return strings.TrimPrefix(s, a.need(0, "prefix")) }),
		"removesuffix": onText(func(_ *run, s string, a actuals) Value { return strings.TrimSuffix(s, a.need(0, "suffix")) }),
		"splitlines": onText(func(r *run, s string, a actuals) Value {
			all := lines(s, a.flag(0, "keepends"))
			return &List{r.fill(len(all), func(i int) Value { return all[i] })}
		}),
		"join": onText(func(r *run, s string, a actuals) Value {
			return r.capture(func() {
				for i, item := range r.items(a.value(0, "iterable", nil)) {
					if i > 0 {
						r.writeValue(s)
					}
					r.writeValue(mustText(item))
				}
			})
		}),
		"count": onText(func(_ *run, s string, a actuals) Value {
			part, _ := window(s, a)
			return strings.Count(part, a.need(0, "sub"))
		}),
		"partition": onText(func(_ *run, s string, a actuals) Value {
			before, after, found := strings.Cut(s, a.need(0, "sep"))
			if !found {
				return &tuple{items: []Value{s, "", ""}}
			}
			return &tuple{items: []Value{before, a.values[0], after}}
		}),
	}
}

// onText returns the method for texts. The result for a markup is a markup, and its arguments are
// escaped.
func onText(f func(r *run, s string, a actuals) Value) method {
	return func(r *run, self Value, a actuals) Value {
		s, _ := textOf(self)
		if r.spend(len(s) / bytesPerStep); !isMarkup(self) {
			return f(r, s, a)
		}
		for i, v := range a.values {
			if _, ok := v.(string); ok {
				a.values[i] = string(r.escaped(v))
			}
		}
		v := f(r, s, a)
		if parts, ok := v.(*List); ok {
			for i, part := range parts.Items {
				parts.Items[i] = as(r.str(part), true)
			}
		}
		if s, ok := v.(string); ok {
			return markup(s)
		}
		return v
	}
}

func strips(trim func(string, func(rune) bool) string) method {
	return onText(func(_ *run, s string, a actuals) Value {
		if a.value(0, "chars", nil) == nil {
			return trim(s, isSpace)
		}
		chars := a.need(0, "chars")
		return trim(s, func(c rune) bool { return strings.ContainsRune(chars, c) })
	})
}

func changes(f func(string) string) method {
	return onText(func(r *run, s string, _ actuals) Value {
		r.text(2 * len(s))
		return f(s)
	})
}

// every returns the method that reports whether all characters of a text have a property.
func every(f func(rune) bool) method {
	return onText(func(_ *run, s string, _ actuals) Value {
		return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return !f(c) })
	})
}

// window returns the part of a text from the argument start to the argument end, and its position.
func window(s string, a actuals) (part string, at int) {
	start, end := max(offset(s, a.int(1, "start", 0)), 0), offset(s, a.int(2, "end", len(s)))
	if start >= end {
		return "", start
	}
	return s[start:end], start
}

// affix returns startswith or endswith.
func affix(has func(s, affix string) bool) method {
	return onText(func(_ *run, s string, a actuals) Value {
		part, _ := window(s, a)
		affixes := []Value{a.value(0, "prefix", nil)}
		if t, ok := affixes[0].(*tuple); ok {
			affixes = t.items
		}
		return slices.ContainsFunc(affixes, func(v Value) bool { return has(part, mustText(v)) })
	})
}

// search returns find, or index if a missing text is a failure, which is otherwise 0.
func search(index func(s, sub string) int, otherwise int) method {
	return onText(func(_ *run, s string, a actuals) Value {
		part, start := window(s, a)
		at := index(part, a.need(0, "sub"))
		if at >= 0 {
			return utf8.RuneCountInString(s[:start+at])
		}
		if otherwise == 0 {
			panic(unusable("a text does not contain another one"))
		}
		return otherwise
	})
}

func split(r *run, s string, a actuals) Value {
	return &List{r.split(s, a, strings.TrimLeftFunc, cutFirst)}
}

func rsplit(r *run, s string, a actuals) Value {
	parts := r.split(s, a, strings.TrimRightFunc, cutLast)
	slices.Reverse(parts)
	return &List{parts}
}

// A cut cuts a part off a text at a separator, or at white space. ok is false if there is none.
type cut func(s, separator string, isSeparator func(rune) bool) (part, rest string, ok bool)

func cutFirst(s, separator string, isSeparator func(rune) bool) (part, rest string, ok bool) {
	if separator != "" {
		return strings.Cut(s, separator)
	}
	i := strings.IndexFunc(s, isSeparator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimLeftFunc(s[i:], isSeparator), true
}

func cutLast(s, separator string, isSeparator func(rune) bool) (part, rest string, ok bool) {
	if separator != "" {
		i := strings.LastIndex(s, separator)
		if i < 0 {
			return s, "", false
		}
		return s[i+len(separator):], s[:i], true
	}
	i := strings.LastIndexFunc(s, isSeparator)
	if i < 0 {
		return s, "", false
	}
	_, n := utf8.DecodeRuneInString(s[i:])
	return s[i+n:], strings.TrimRightFunc(s[:i], isSeparator), true
}

// split cuts a text into parts. White space is trimmed at the side at which it begins.
func (r *run) split(s string, a actuals, trim func(string, func(rune) bool) string, cut cut) []Value {
	separator, limit := a.text(0, "sep", ""), a.int(1, "maxsplit", -1)
	spaced := a.value(0, "sep", nil) == nil
	if separator == "" && !spaced {
		panic(unusable("the separator of a split is empty"))
	}
	if spaced {
		s = trim(s, isSpace)
	}
	var parts []Value
	for limit < 0 || len(parts) < limit {
		part, rest, ok := cut(s, separator, isSpace)
		if !ok {
			break
		}
		r.list(1)
		parts, s = append(parts, part), rest
	}
	if r.list(1); s != "" || !spaced {
		parts = append(parts, s)
	}
	return parts
}

// lines returns the lines of a text, with their ends if keep is set.
func lines(s string, keep bool) (all []string) {
	for s != "" {
		end := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if end < 0 {
			return append(all, s)
		}
		_, n := utf8.DecodeRuneInString(s[end:])
		if strings.HasPrefix(s[end:], "\r\n") {
			n = 2
		}
		if keep {
			all = append(all, s[:end+n])
		} else {
			all = append(all, s[:end])
		}
		s = s[end+n:]
	}
	return all
}

func replace(r *run, s string, a actuals) Value {
	old, by, limit := a.need(0, "old"), a.need(1, "new"), a.int(2, "count", -1)
	n := strings.Count(s, old)
	if limit >= 0 {
		n = min(n, limit)
	}
	growth := len(by) - len(old)
	if growth > 0 && n > MaxOutput/growth {
		panic(errOutput)
	}
	r.text(len(s) + n*growth)
	return strings.Replace(s, old, by, limit)
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c >= utf8.RuneSelf })
}

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

// title begins each run of letters with an upper case letter.
func title(s string) string {
	return words(s, func(c rune) bool { return !unicode.IsUpper(c) && !unicode.IsLower(c) })
}

func capitalize(s string) string { return words(s, func(rune) bool { return false }) }

// words begins each word of a text with an upper case letter, and continues it with lower case.
func words(s string, isBreak func(rune) bool) string {
	var b strings.Builder
	for s != "" {
		n := strings.IndexFunc(s, func(c rune) bool { return !isBreak(c) })
		if n < 0 {
			n = len(s)
		}
		b.WriteString(s[:n])
		s = s[n:]
		if n = strings.IndexFunc(s, isBreak); n < 0 {
			n = len(s)
		}
		c, head := utf8.DecodeRuneInString(s)
		if n > 0 {
			b.WriteRune(unicode.ToTitle(c))
			b.WriteString(lower(s[head:n]))
		}
		s = s[n:]
	}
	return b.String()
}
