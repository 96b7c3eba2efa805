package command

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"github.com/whence-dev/whence/internal/printable"
)

// A wrapper writes text that arrives in pieces to a terminal, and breaks lines between words. It
// shows a word as it grows: a word that does not fit is erased and begun again on the next line.
type wrapper struct {
	out    io.Writer
	screen screen
	column int
	word   []rune // the last word so far; at most a line
	cells  int    // columns of word
}

// newWrapper returns a wrapper in the first column of a line.
func newWrapper(out io.Writer, s screen) *wrapper { return &wrapper{out: out, screen: s} }

// Column returns the number of columns that are used in the current line.
func (w *wrapper) Column() int { return w.column }

// Write writes a piece of text in a style; "" is the terminal's own. Control characters are left out.
func (w *wrapper) Write(style textStyle, text string) error {
	columns, _ := w.screen.Size()
	var b strings.Builder
	for _, r := range printable.Text(text) {
		w.add(&b, r, columns)
	}
	if style != "" {
		_, err := io.WriteString(w.out, w.screen.Show(style, b.String()))
		return err
	}
	_, err := io.WriteString(w.out, b.String())
	return err
}

func (w *wrapper) add(b *strings.Builder, r rune, columns int) {
	if r == '\t' {
		r = ' '
	}
	cells := cellsOf(r)
	switch {
	case r == '\n':
		b.WriteRune(r)
		w.column, w.word, w.cells = 0, w.word[:0], 0
		return
	case w.column+cells <= columns:
	case unicode.IsSpace(r): // the line break takes its place
		b.WriteByte('\n')
		w.column, w.word, w.cells = 0, w.word[:0], 0
		return
	case w.cells < w.column: // the word did not begin the line
		if w.cells > 0 {
			fmt.Fprintf(b, "\x1b[%dD\x1b[K", w.cells)
		}
		fmt.Fprintf(b, "\n%s", string(w.word))
		w.column = w.cells
	default: // a word that is longer than a line
		b.WriteByte('\n')
		w.column, w.word, w.cells = 0, w.word[:0], 0
	}
	b.WriteRune(r)
	w.column += cells
	if unicode.IsSpace(r) || cells > 1 { // lines may break between wide characters
		w.word, w.cells = w.word[:0], 0
		return
	}
	w.word, w.cells = append(w.word, r), w.cells+cells
}

// cellsOf returns the columns that a character takes.
func cellsOf(r rune) int {
	switch {
	case unicode.Is(unicode.Mn, r):
		return 0
	case width.LookupRune(r).Kind() == width.EastAsianWide, width.LookupRune(r).Kind() == width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}
