// Package printable makes text of others safe to print: it cannot control the terminal.
package printable

import (
	"strings"
	"unicode"
)

// Text returns text without characters that control a terminal, except for line breaks and tabs. A
// model's answer, or a message of a server, may contain any character.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
}

// Line is Text for one line or for one cell of a table: line breaks and tabs become spaces.
func Line(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Text(text))
}
