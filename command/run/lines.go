package run

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/whence-dev/whence/command/screen"
	"github.com/whence-dev/whence/internal/cli"
)

// A lineReader reads lines that the user edits. It keeps a history.
type lineReader struct {
	in       *os.File
	screen   screen.Screen
	terminal *term.Terminal
	signals  func() (signals <-chan os.Signal, stop func())
}

func newLineReader(in *os.File, out io.Writer, s screen.Screen, signals func() (<-chan os.Signal, func())) *lineReader {
	type both struct {
		io.Reader
		io.Writer
	}
	return &lineReader{in, s, term.NewTerminal(both{bufio.NewReader(in), out}, "> "), signals}
}

// read returns the next line, or several lines that were pasted at once. The terminal is raw only
// while read runs, so that Ctrl-C is a signal while an answer arrives. If a signal arrives while
// read waits, read restores the terminal and returns the error of an interrupted command.
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
	return awaitLine(l.terminal.ReadLine, signals)
}

// awaitLine reads lines until one is not a part of a paste, or until a signal arrives. After a
// signal the read continues until the process ends: a read of a terminal cannot be canceled.
func awaitLine(read func() (string, error), signals <-chan os.Signal) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var lines []string // bounded by what the user pastes
		for {
			line, err := read()
			lines = append(lines, line)
			if !errors.Is(err, term.ErrPasteIndicator) {
				done <- result{strings.Join(lines, "\n"), err}
				return
			}
		}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-signals:
		return "", cli.Interrupted()
	}
}
