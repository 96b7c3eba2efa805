package pattern

import (
	"cmp"
	"slices"
	"unicode"
	"unicode/utf8"
)

// A span of characters includes both ends.
type runeSpan struct{ lo, hi rune }

// A set of characters is sorted; its spans neither overlap nor touch.
type set []runeSpan

// newSet returns the set of the characters in spans, which may be in any order.
func newSet(spans ...runeSpan) set {
	slices.SortFunc(spans, func(a, b runeSpan) int { return cmp.Compare(a.lo, b.lo) })
	var s set
	for _, next := range spans {
		if n := len(s); n > 0 && next.lo <= s[n-1].hi+1 {
			s[n-1].hi = max(s[n-1].hi, next.hi)
		} else {
			s = append(s, next)
		}
	}
	return s
}

func setOf(runes ...rune) set {
	spans := make([]runeSpan, len(runes))
	for i, r := range runes {
		spans[i] = runeSpan{r, r}
	}
	return newSet(spans...)
}

func fromTables(tables ...*unicode.RangeTable) set {
	var spans []runeSpan
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			spans = append(spans, runeSpan{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			spans = append(spans, runeSpan{r, r})
		}
	}
	for _, t := range tables {
		for _, r := range t.R16 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range t.R32 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return newSet(spans...)
}

func (s set) union(others ...set) set { return newSet(slices.Concat(append(others, s)...)...) }

func (s set) negate() set {
	var out set
	next := rune(0)
	for _, span := range s {
		if next < span.lo {
			out = append(out, runeSpan{next, span.lo - 1})
		}
		next = span.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, runeSpan{next, unicode.MaxRune})
	}
	return out
}

func (s set) intersect(o set) set {
	var out set
	for i, j := 0, 0; i < len(s) && j < len(o); {
		if lo, hi := max(s[i].lo, o[j].lo), min(s[i].hi, o[j].hi); lo <= hi {
			out = append(out, runeSpan{lo, hi})
		}
		if s[i].hi < o[j].hi {
			i++
		} else {
			j++
		}
	}
	return out
}

func (s set) minus(o set) set { return s.intersect(o.negate()) }

func (s set) has(r rune) bool {
	_, found := slices.BinarySearchFunc(s, r, func(span runeSpan, r rune) int {
		switch {
		case span.hi < r:
			return -1
		case span.lo > r:
			return 1
		}
		return 0
	})
	return found
}

// A charset is a set with tables for quick look-ups. It is immutable.
type charset struct {
	ascii [utf8.RuneSelf]bool
	plane *[1 << 16 / 64]uint64 // bits of the characters below U+10000; nil if none is beyond ASCII
	high  set                   // characters from U+10000 on
}

func newCharset(s set) *charset {
	c := new(charset)
	for _, span := range s {
		for r := span.lo; r <= min(span.hi, utf8.RuneSelf-1); r++ {
			c.ascii[r] = true
		}
		if span.hi >= utf8.RuneSelf && span.lo < 1<<16 && c.plane == nil {
			c.plane = new([1 << 16 / 64]uint64)
		}
		for r := max(span.lo, utf8.RuneSelf); r <= min(span.hi, 1<<16-1); r++ {
			c.plane[r>>6] |= 1 << (r & 63)
		}
		if span.hi >= 1<<16 {
			c.high = append(c.high, runeSpan{max(span.lo, 1<<16), span.hi})
		}
	}
	return c
}

func (c *charset) has(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return c.ascii[r]
	case r < 1<<16:
		return c.plane != nil && c.plane[r>>6]&(1<<(r&63)) != 0
	}
	return c.high.has(r)
}

// step returns the end of the character of s at i if the set has it, otherwise i.
func (c *charset) step(s string, i int) int {
	if i >= len(s) {
		return i
	}
	if b := s[i]; b < utf8.RuneSelf {
		if c.ascii[b] {
			return i + 1
		}
		return i
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if c.has(r) {
		return i + n
	}
	return i
}
