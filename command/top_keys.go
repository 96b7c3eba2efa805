package command

import (
	"io"
	"os"

	"golang.org/x/term"
)

// A key is what a terminal sends for one key.
type key string

// Keys that send several characters.
const (
	keyUp   key = "\x1b[A"
	keyDown key = "\x1b[B"
)

// readKeys makes the terminal send single keys, and returns them. If in is no terminal there are no
// keys. restore undoes the change.
func readKeys(in *os.File) (keys <-chan key, restore func(), err error) {
	fd := int(in.Fd())
	if !term.IsTerminal(fd) {
		return nil, func() {}, nil
	}
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, nil, err
	}
	pressed := make(chan key)
	go splitKeys(in, pressed) // lives as long as the process: a read of a terminal cannot be canceled
	return pressed, func() { _ = term.Restore(fd, before) }, nil
}

// splitKeys sends the keys of in to pressed, which it closes at the end. A terminal sends the
// characters of one key at once, and those of several keys if they are pressed fast.
func splitKeys(in io.Reader, pressed chan<- key) {
	defer close(pressed)
	buf := make([]byte, 64)
	for {
		n, err := in.Read(buf)
		for rest := string(buf[:n]); rest != ""; {
			size := 1
			if len(rest) >= 3 && rest[:2] == "\x1b[" {
				size = 3
			}
			pressed <- key(rest[:size])
			rest = rest[size:]
		}
		if err != nil {
			return
		}
	}
}
