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
		"split": splits(false), "rsplit": splits(true), "replace": onText(replace), "format": onText(formatMethod),
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
		"find": search(strings.Index, -1), "rfind": search(strings.LastIndex, -1),
		"index": search(strings.Index, 0), "rindex": search(strings.LastIndex, 0),
		"upper": changes(upper), "lower": changes(lower), "title": changes(title), "capitalize": changes(capitalize),
		"isalpha": every(unicode.IsLetter), "isdigit": every(unicode.IsDigit), "isdecimal": every(unicode.IsDigit),
		"isnumeric": every(unicode.IsNumber), "isspace": every(isSpace),
		"isalnum":      every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"islower":      onText(func(_ *run, s string, _ actuals) Value { return cased(s, unicode.IsLower, unicode.IsUpper) }),
		"isupper":      onText(func(_ *run, s string, _ actuals) Value { return cased(s, unicode.IsUpper, unicode.IsLower) }),
		"removeprefix": onText(func(_ *run, s string, a actuals) Value { return strings.TrimPrefix(s, a.text(0, "prefix")) }),
		"removesuffix": onText(func(_ *run, s string, a actuals) Value { return strings.TrimSuffix(s, a.text(0, "suffix")) }),
		"splitlines": onText(func(r *run, s string, a actuals) Value {
			all := lines(s, a.flag(0, "keepends"))
			return NewList(r.fill(len(all), func(i int) Value { return all[i] })...)
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
			return strings.Count(part, a.text(0, "sub"))
		}),
		"partition": onText(func(_ *run, s string, a actuals) Value {
			before, after, found := strings.Cut(s, a.text(0, "sep"))
			if !found {
				return newTuple(s, "", "")
			}
			return newTuple(before, a.values[0], after)
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
		chars := a.text(0, "chars")
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
		if t, ok := affixes[0].(*List); ok {
			affixes = t.Items
		}
		return slices.ContainsFunc(affixes, func(v Value) bool { return has(part, mustText(v)) })
	})
}

// search returns find, or index if a missing text is a failure, which is otherwise 0.
func search(index func(s, sub string) int, otherwise int) method {
	return onText(func(_ *run, s string, a actuals) Value {
		part, start := window(s, a)
		at := index(part, a.text(0, "sub"))
		if at >= 0 {
			return utf8.RuneCountInString(s[:start+at])
		}
		if otherwise == 0 {
			panic(unusable("a text does not contain another one"))
		}
		return otherwise
	})
}

// splits returns split, or rsplit if fromEnd is set.
func splits(fromEnd bool) method {
	return onText(func(r *run, s string, a actuals) Value {
		var spans []span
		if separator := a.value(0, "sep", nil); separator == nil {
			spans = words(s, isSpace)
		} else if sep := mustText(separator); sep == "" {
			panic(unusable("the separator of a split is empty"))
		} else {
			r.list(strings.Count(s, sep))
			at := 0
			for part := range strings.SplitSeq(s, sep) {
				spans = append(spans, span{start: at, stop: at + len(part)})
				at += len(part) + len(sep)
			}
		}
		n := len(spans)
		if limit := a.int(1, "maxsplit", -1); limit >= 0 && n > limit+1 {
			if fromEnd {
				spans = append([]span{{stop: spans[n-limit-1].stop}}, spans[n-limit:]...)
			} else {
				spans = append(spans[:limit], span{start: spans[limit].start, stop: len(s)})
			}
		}
		return NewList(r.fill(len(spans), func(i int) Value { return s[spans[i].start:spans[i].stop] })...)
	})
}

// words returns where the words of a text stand, between characters that are breaks.
func words(s string, isBreak func(rune) bool) (spans []span) {
	start := -1
	for i, c := range s {
		switch {
		case isBreak(c) && start >= 0:
			spans, start = append(spans, span{start: start, stop: i}), -1
		case !isBreak(c) && start < 0:
			start = i
		}
	}
	if start >= 0 {
		spans = append(spans, span{start: start, stop: len(s)})
	}
	return spans
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
	old, by, limit := a.text(0, "old"), a.text(1, "new"), a.int(2, "count", -1)
	n := strings.Count(s, old)
	if limit >= 0 {
		n = min(n, limit)
	}
	r.text(len(s) + product(n, len(by)-len(old)))
	return strings.Replace(s, old, by, limit)
}

func upper(s string) string { return recased(s, strings.ToUpper, cases.Upper) }

func lower(s string) string { return recased(s, strings.ToLower, cases.Lower) }

func recased(s string, ascii func(string) string, all func(language.Tag, ...cases.Option) cases.Caser) string {
	if strings.ContainsFunc(s, func(c rune) bool { return c >= utf8.RuneSelf }) {
		return all(language.Und).String(s)
	}
	return ascii(s)
}

// title begins each run of letters with an upper case letter.
func title(s string) string {
	return titled(s, func(c rune) bool { return !unicode.IsUpper(c) && !unicode.IsLower(c) })
}

func capitalize(s string) string { return titled(s, func(rune) bool { return false }) }

// titled begins each word of a text with an upper case letter, and continues it with lower case.
func titled(s string, isBreak func(rune) bool) string {
	var b strings.Builder
	done := 0
	for _, w := range words(s, isBreak) {
		b.WriteString(s[done:w.start])
		c, head := utf8.DecodeRuneInString(s[w.start:])
		b.WriteString(string(unicode.ToTitle(c)) + lower(s[w.start+head:w.stop]))
		done = w.stop
	}
	return b.String() + s[done:]
}
