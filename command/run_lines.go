package command

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/whence-dev/whence/internal/cli"
)

// The prompts of a message, and of its further lines.
const (
	firstPrompt = "> "
	morePrompt  = "... "
)

// A lineReader reads messages that the user edits. It keeps a history.
type lineReader struct {
	in       *os.File
	screen   screen
	terminal *term.Terminal
	signals  func() (signals <-chan os.Signal, stop func())
}

func newLineReader(in *os.File, out io.Writer, s screen, signals func() (<-chan os.Signal, func())) *lineReader {
	return &lineReader{in, s, newTerminal(in, out), signals}
}

// newTerminal returns an editor of lines, in which a paste of several lines is one line.
func newTerminal(in io.Reader, out io.Writer) *term.Terminal {
	type both struct {
		io.Reader
		io.Writer
	}
	return term.NewTerminal(both{&pasteReader{in: in}, out}, firstPrompt)
}

// read returns the next message. The terminal is raw only while read runs, so that Ctrl-C is a signal
// while an answer arrives. If a signal arrives while read waits, read restores the terminal and
// returns the error of an interrupted command.
func (l *lineReader) read() (string, error) {
	signals, stop := l.signals()
	defer stop()
	before, err := term.MakeRaw(int(l.in.Fd()))
	if err != nil {
		return "", err
	}
	defer term.Restore(int(l.in.Fd()), before) //nolint:errcheck // the terminal is gone
	width, height := l.screen.Size()
	if err := l.terminal.SetSize(width, height); err != nil {
		return "", err
	}
	l.terminal.SetBracketedPasteMode(true)
	defer l.terminal.SetBracketedPasteMode(false)
	return await(func() (string, error) { return readMessage(l.terminal) }, signals)
}

// await reads until a signal arrives. After a signal the read continues until the process ends: a
// read of a terminal cannot be canceled.
func await(read func() (string, error), signals <-chan os.Signal) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := read()
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-signals:
		return "", cli.Interrupted()
	}
}

// quotes begin and end a message of several lines.
const quotes = `"""`

// readMessage reads a line; or, if it begins with three quotes, the lines up to the next three; or,
// if it ends with a backslash, the next line, too.
func readMessage(t *term.Terminal) (string, error) {
	next := func(prompt string) (string, error) {
		t.SetPrompt(prompt)
		line, err := t.ReadLine()
		return strings.ReplaceAll(line, pastedBreak, "\n"), err
	}
	text, err := next(firstPrompt)
	if rest, quoted := strings.CutPrefix(strings.TrimSpace(text), quotes); quoted {
		for err == nil && !strings.Contains(rest, quotes) {
			var line string
			line, err = next(morePrompt)
			rest += "\n" + line
		}
		text, _, _ = strings.Cut(rest, quotes)
		return text, err
	}
	for err == nil && strings.HasSuffix(text, `\`) {
		var line string
		line, err = next(morePrompt)
		text = strings.TrimSuffix(text, `\`) + "\n" + line
	}
	return text, err
}

// The sequences in which a terminal encloses a paste, and what the editor shows for a line break in
// it, so that the paste stays one line.
const (
	pasteStart  = "\x1b[200~"
	pasteEnd    = "\x1b[201~"
	pastedBreak = "⏎"
)

// A pasteReader reads what a terminal sends, and replaces the line breaks of pastes.
type pasteReader struct {
	in       io.Reader
	pasting  bool
	matched  int  // bytes of the sequence that begins or ends a paste
	returned bool // the last byte of a paste was a carriage return: a line feed belongs to it
	ready    []byte
}

// Read implements io.Reader.
func (r *pasteReader) Read(b []byte) (int, error) {
	for len(r.ready) == 0 {
		var chunk [256]byte
		n, err := r.in.Read(chunk[:])
		for _, c := range chunk[:n] {
			r.take(c)
		}
		if n == 0 && err != nil {
			return 0, err
		}
	}
	n := copy(b, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

func (r *pasteReader) take(c byte) {
	mark := pasteStart
	if r.pasting {
		mark = pasteEnd
	}
	switch c {
	case mark[r.matched]:
		r.matched++
	case mark[0]:
		r.matched = 1
	default:
		r.matched = 0
	}
	if r.matched == len(mark) {
		r.matched, r.pasting = 0, !r.pasting
	}
	after := r.returned
	r.returned = r.pasting && c == '\r'
	switch {
	case !r.pasting || c != '\r' && c != '\n':
		r.ready = append(r.ready, c)
	case c == '\r' || !after:
		r.ready = append(r.ready, pastedBreak...)
	}
}
