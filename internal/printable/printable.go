// Package printable makes text of others safe to print: the text can neither control the terminal nor
// reorder what stands beside it.
package printable

import (
	"strings"
	"unicode"
)

// Text returns text without the characters that control a terminal, except for line breaks and tabs,
// and without those that change the direction of writing. A model's answer, or a message of a
// server, may contain any character.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return -1
		default:
			return r
		}
	}, text)
}

// Line is Text for one line or for one cell of a table: line breaks and tabs become spaces.
func Line(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Text(text))
}
