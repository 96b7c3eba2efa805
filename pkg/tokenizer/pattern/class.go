package pattern

import (
	"unicode"
	"unicode/utf8"
)

// A class is the set of properties of a character that scanners need: the relevant part of its
// Unicode category, and whether it is white space (some control characters are).
type class uint8

const (
	upper     class = 1 << iota // Lu, Lt
	lowerCase                   // Ll
	plain                       // Lm, Lo: letters without case
	mark                        // M
	number                      // N
	punct                       // P
	symbolic                    // S
	space                       // White_Space

	letter = upper | lowerCase | plain
)

// pageBits is the number of bits of a character that select an entry within a page.
const pageBits = 8

type classPage [1 << pageBits]class

// classes maps every character to its class, in pages, because most pages are equal. To search the
// range tables of package unicode for each character would cost more than the rest of scanning.
var classes = func() (table [(unicode.MaxRune >> pageBits) + 1]*classPage) {
	var flat [unicode.MaxRune + 1]class
	for c, names := range map[class][]string{
		upper: {"lu", "lt"}, lowerCase: {"ll"}, plain: {"lm", "lo"}, mark: {"m"}, number: {"n"}, punct: {"p"}, symbolic: {"s"}, space: {"space"},
	} {
		for _, span := range union(names...) {
			for i := span.lo; i <= span.hi; i++ {
				flat[i] |= c
			}
		}
	}
	unique := make(map[classPage]*classPage)
	for i := range table {
		page := classPage(flat[i<<pageBits:])
		if unique[page] == nil {
			unique[page] = &page
		}
		table[i] = unique[page]
	}
	return table
}()

var ascii = classes[0]

func classOf(r rune) class { return classes[r>>pageBits][r&(1<<pageBits-1)] }

// classAt returns the class and the length of the character of s at i.
func classAt(s string, i int) (class, int) {
	if b := s[i]; b < utf8.RuneSelf {
		return ascii[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return classOf(r), n
}

// run returns the end of the run of characters in s, from i on, whose class is in of.
func run(s string, i int, of class) int {
	for i < len(s) {
		c, n := classAt(s, i)
		if c&of == 0 {
			break
		}
		i += n
	}
	return i
}

// runOther is run for characters whose class is not in not.
func runOther(s string, i int, not class) int {
	for i < len(s) {
		c, n := classAt(s, i)
		if c&not != 0 {
			break
		}
		i += n
	}
	return i
}

func isNewline(b byte) bool { return b == '\n' || b == '\r' }

func runNewlines(s string, i int) int {
	for i < len(s) && isNewline(s[i]) {
		i++
	}
	return i
}

// IsWord implements \w of Rust's regex crate: Unicode's UTS #18, annex C.
func IsWord(r rune) bool {
	return classOf(r)&(letter|mark) != 0 || unicode.In(r, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

// IsNumber implements \p{N}.
func IsNumber(r rune) bool { return classOf(r)&number != 0 }
