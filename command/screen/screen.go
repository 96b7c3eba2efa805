// Package screen is the terminal that a command writes to: its size, its colours, and text that
// fits into it.
package screen

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Size of an output that is not a terminal.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// A Screen is an output. The zero value is not a terminal.
type Screen struct {
	fd       int
	terminal bool
	colours  bool
}

// Of returns the screen that w writes to.
func Of(w io.Writer) Screen {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Screen{}
	}
	return Screen{fd: int(f.Fd()), terminal: true, colours: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Terminal reports whether the output is a terminal.
func (s Screen) Terminal() bool { return s.terminal }

// Size returns the columns and rows of the terminal.
func (s Screen) Size() (width, height int) {
	if !s.terminal {
		return defaultWidth, defaultHeight
	}
	width, height, err := term.GetSize(s.fd)
	if err != nil || width < 1 || height < 1 {
		return defaultWidth, defaultHeight
	}
	return width, height
}

// A Style is how a terminal shows text.
type Style string

// The styles.
const (
	Bold    Style = "1"
	Dim     Style = "2"
	Inverse Style = "7"
	Red     Style = "31"
	Green   Style = "32"
	Yellow  Style = "33"
	Cyan    Style = "36"
)

// Show returns text in a style, or text itself where there are no colours.
func (s Screen) Show(style Style, text string) string {
	if !s.colours || text == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}

// Fit returns text cut or padded to width columns. A cut is marked with an ellipsis. Each character
// counts as one column.
func Fit(text string, width int) string {
	runes := []rune(text)
	switch {
	case width <= 0:
		return ""
	case len(runes) > width:
		return string(runes[:width-1]) + "…"
	default:
		return text + strings.Repeat(" ", width-len(runes))
	}
}
