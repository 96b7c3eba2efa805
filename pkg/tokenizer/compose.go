package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// compose returns a normalizer to form. decomposed is the form of the decomposition, and form itself if
// characters stay decomposed.
//
// golang.org/x/text uses the stream-safe format: it inserts U+034F into a run of more than 30
// marks. The Rust library does not, so texts with long runs of marks take a separate path. Also,
// the Rust library normalizes with the tables of Unicode 9.0: it treats later characters as
// unassigned, and does not change them.
func compose(form, decomposed norm.Form) func(piece) piece {
	known := func(s string) string {
		if longMarks(s) {
			return composeLong(s, form, decomposed)
		}
		return form.String(s)
	}
	return func(p piece) piece {
		at := strings.IndexFunc(p.text, isNewer)
		if at < 0 {
			p.text = known(p.text)
			return p
		}
		var out strings.Builder
		rest := p.text
		for ; at >= 0; at = strings.IndexFunc(rest, isNewer) {
			_, n := utf8.DecodeRuneInString(rest[at:])
			out.WriteString(known(rest[:at]))
			out.WriteString(rest[at : at+n])
			rest = rest[at+n:]
		}
		out.WriteString(known(rest))
		p.text = out.String()
		return p
	}
}

// longMarks reports whether s has a run of marks that may be longer than 30 after decomposition. No
// mark decomposes to more than two marks, and no character before the marks adds more than four.
func longMarks(s string) bool {
	n := 0
	for _, r := range s {
		if r < 0x300 || !isMark(r) {
			n = 0
		} else if n++; n > 10 {
			return true
		}
	}
	return false
}

// isMark reports whether golang.org/x/text treats r as a mark. Such characters include letters that
// compose with the character before them, such as Hangul's vowels and final consonants.
func isMark(r rune) bool {
	return unicode.Is(unicode.M, r) || 0x1161 <= r && r <= 0x1175 || 0x11A8 <= r && r <= 0x11C2 || r == 'ﾞ' || r == 'ﾟ'
}

// composeLong implements UAX #15: it decomposes, sorts marks into canonical order, and composes unless
// form is the decomposition.
func composeLong(s string, form, decomposed norm.Form) string {
	type char struct {
		r   rune
		ccc uint8
	}
	chars := make([]char, 0, len(s))
	for _, r := range s {
		for _, d := range decomposed.String(string(r)) {
			chars = append(chars, char{d, norm.NFD.PropertiesString(string(d)).CCC()})
		}
	}
	for i := 0; i < len(chars); i++ {
		run := i
		for run < len(chars) && chars[run].ccc != 0 {
			run++
		}
		if run > i {
			slices.SortStableFunc(chars[i:run], func(a, b char) int { return int(a.ccc) - int(b.ccc) })
			i = run
		}
	}
	out := make([]rune, 0, len(chars))
	starter := -1    // the index of the character that may compose with the next character
	last := uint8(0) // the combining class of the last character after the starter
	for _, c := range chars {
		if form != decomposed && starter >= 0 && (last == 0 || last < c.ccc) {
			if joined, ok := primary(out[starter], c.r); ok {
				out[starter] = joined
				continue
			}
		}
		if c.ccc == 0 {
			starter = len(out)
		}
		last = c.ccc
		out = append(out, c.r)
	}
	return string(out)
}

// primary returns the primary composite of a and b.
func primary(a, b rune) (rune, bool) {
	joined := []rune(norm.NFC.String(string([]rune{a, b})))
	if len(joined) == 1 {
		return joined[0], true
	}
	return 0, false
}
