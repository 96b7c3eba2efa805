package command

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

// A screen is an output. The zero value is not a terminal.
type screen struct {
	fd       int
	terminal bool
	colours  bool
}

// screenOf returns the screen that w writes to.
func screenOf(w io.Writer) screen {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return screen{}
	}
	return screen{fd: int(f.Fd()), terminal: true, colours: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Terminal reports whether the output is a terminal.
func (s screen) Terminal() bool { return s.terminal }

// Size returns the columns and rows of the terminal.
func (s screen) Size() (width, height int) {
	if !s.terminal {
		return defaultWidth, defaultHeight
	}
	width, height, err := term.GetSize(s.fd)
	if err != nil || width < 1 || height < 1 {
		return defaultWidth, defaultHeight
	}
	return width, height
}

// A textStyle is how a terminal shows text.
type textStyle string

// The styles.
const (
	bold    textStyle = "1"
	dim     textStyle = "2"
	inverse textStyle = "7"
	red     textStyle = "31"
	green   textStyle = "32"
	yellow  textStyle = "33"
	cyan    textStyle = "36"
)

// Show returns text in a style, or text itself where there are no colours.
func (s screen) Show(style textStyle, text string) string {
	if !s.colours || text == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}

// fit returns text cut or padded to width columns. A cut is marked with an ellipsis. Each character
// counts as one column.
func fit(text string, width int) string {
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
