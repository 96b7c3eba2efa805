package pattern

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// The classes of characters that decide where grapheme clusters end: UAX #29.
type graphemeClass uint8

const (
	otherGrapheme graphemeClass = iota
	control
	prepend
	extend
	joiner // U+200D
	spacing
	pictograph
	regional
	hangulL
	hangulV
	hangulT
	hangulLV
	hangulLVT
)

type graphemeTables struct{ control, prepend, extend, spacing, pictograph *charset }

var graphemes = sync.OnceValue(func() *graphemeTables {
	prepended := fromTables(unicode.Prepended_Concatenation_Mark).union(set{
		{0xD4E, 0xD4E}, {0x111C2, 0x111C3}, {0x113D1, 0x113D1}, {0x1193F, 0x1193F}, {0x11941, 0x11941},
		{0x11A3A, 0x11A3A}, {0x11A84, 0x11A89}, {0x11D46, 0x11D46}, {0x11F02, 0x11F02},
	})
	extended := union("mn", "me", "othergraphemeextend", "emojimodifier").union(setOf(0x200C))
	unassigned := union("cn").intersect(set{{0x2065, 0x2065}, {0xFFF0, 0xFFF8}, {0xE0000, 0xE0FFF}})
	never := set{ // spacing marks that do not continue a cluster
		{0x102B, 0x102C}, {0x1038, 0x1038}, {0x1062, 0x1064}, {0x1067, 0x106D}, {0x1083, 0x1083}, {0x1087, 0x108C},
		{0x108F, 0x108F}, {0x109A, 0x109C}, {0x1A61, 0x1A61}, {0x1A63, 0x1A64}, {0xAA7B, 0xAA7B}, {0xAA7D, 0xAA7D},
		{0x11720, 0x11721},
	}
	return &graphemeTables{
		control:    newCharset(union("cc", "cf", "zl", "zp", "cs").union(unassigned).minus(extended).minus(prepended).minus(setOf(0x200D))),
		prepend:    newCharset(prepended),
		extend:     newCharset(extended),
		spacing:    newCharset(union("mc").union(set{{0xE33, 0xE33}, {0xEB3, 0xEB3}}).minus(extended).minus(never)),
		pictograph: newCharset(union("extendedpictographic")),
	}
})

func (t *graphemeTables) of(r rune) graphemeClass {
	switch {
	case r >= 0x1100 && r <= 0x115F || r >= 0xA960 && r <= 0xA97C:
		return hangulL
	case r >= 0x1160 && r <= 0x11A7 || r >= 0xD7B0 && r <= 0xD7C6:
		return hangulV
	case r >= 0x11A8 && r <= 0x11FF || r >= 0xD7CB && r <= 0xD7FB:
		return hangulT
	case r >= 0xAC00 && r <= 0xD7A3 && (r-0xAC00)%28 == 0:
		return hangulLV
	case r >= 0xAC00 && r <= 0xD7A3:
		return hangulLVT
	case r >= 0x1F1E6 && r <= 0x1F1FF:
		return regional
	case r == 0x200D:
		return joiner
	case t.extend.has(r):
		return extend
	case t.prepend.has(r):
		return prepend
	case t.control.has(r):
		return control
	case t.spacing.has(r):
		return spacing
	case t.pictograph.has(r):
		return pictograph
	}
	return otherGrapheme
}

// before returns the number of regional indicators that end at i, and whether a pictograph and its
// extensions do: an expression may begin within a cluster.
func (t *graphemeTables) before(s string, i int) (flags int, picture bool) {
	for at := i; at > 0; flags++ {
		r, n := utf8.DecodeLastRuneInString(s[:at])
		if t.of(r) != regional {
			break
		}
		at -= n
	}
	for at := i; at > 0; {
		r, n := utf8.DecodeLastRuneInString(s[:at])
		if class := t.of(r); class != extend && class != joiner {
			return flags, class == pictograph
		}
		at -= n
	}
	return flags, false
}

// Cluster returns the length of the grapheme cluster with which s begins, in bytes.
func Cluster(s string) int {
	if len(s) > 1 && s[0]|s[1] < utf8.RuneSelf && s[0] != '\r' {
		return 1
	}
	return graphemeEnd(s, 0)
}

// graphemeEnd returns the end of the grapheme cluster of s that begins at i, or i at the end.
func graphemeEnd(s string, i int) int {
	if i >= len(s) {
		return i
	}
	t := graphemes()
	r, n := utf8.DecodeRuneInString(s[i:])
	at, last := i+n, t.of(r)
	if r == '\r' && at < len(s) && s[at] == '\n' {
		return at + 1
	}
	if last == control {
		return at
	}
	flags, picture := t.before(s, i)
	if last == regional {
		flags++
	}
	picture = last == pictograph || picture && (last == extend || last == joiner)
	for at < len(s) {
		r, n := utf8.DecodeRuneInString(s[at:])
		class := t.of(r)
		if !joins(last, class, picture, flags) {
			break
		}
		if class == regional {
			flags++
		}
		picture = class == pictograph || picture && (class == extend || class == joiner)
		at, last = at+n, class
	}
	return at
}

// joins reports that next belongs to the cluster that ends with last.
func joins(last, next graphemeClass, picture bool, flags int) bool {
	switch {
	case next == control:
		return false
	case next == extend, next == joiner, next == spacing, last == prepend:
		return true
	case last == hangulL:
		return next == hangulL || next == hangulV || next == hangulLV || next == hangulLVT
	case last == hangulLV, last == hangulV:
		return next == hangulV || next == hangulT
	case last == hangulLVT, last == hangulT:
		return next == hangulT
	case next == pictograph:
		return last == joiner && picture
	case last == regional && next == regional:
		return flags%2 == 1
	}
	return false
}
