package pattern

import (
	"testing"
	"unicode"
)

// TestTablesOfOldUnicodeHaveTheirSize: the numbers are those of the Rust library. Another version of
// package unicode changes them, until the tables name its characters, too.
func TestTablesOfOldUnicodeHaveTheirSize(t *testing.T) {
	for name, c := range map[string]struct {
		is   func(rune) bool
		want int
	}{
		"punctuation": {IsPunctuation, 726}, "marks": {IsMark, 2097}, "accents": {IsAccent, 1567}, "controls": {IsControl, 137683},
	} {
		n := 0
		for r := range rune(unicode.MaxRune + 1) {
			if c.is(r) {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%s: %d, want %d", name, n, c.want)
		}
	}
	for r, want := range map[rune]bool{'!': true, '$': true, '«': true, 'a': false, '€': false, 0x166D: true, 0x61D: false} {
		if IsPunctuation(r) != want {
			t.Errorf("%U is punctuation: %v", r, !want)
		}
	}
}
