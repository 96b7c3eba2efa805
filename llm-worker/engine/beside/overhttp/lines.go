package overhttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// readBuffer is the size of the buffer of a stream, in bytes. Longer lines are copied.
const readBuffer = 4 << 10

// errLongLine is the error for a line that is longer than it may be.
var errLongLine = errors.New("a line is too long")

// readLine reads a line of r with its end, valid until the next call. At the end of the stream it returns
// what is left together with io.EOF. The line may be somewhat longer than limit.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	whole := bytes.Clone(line) // rare
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(whole) > limit {
			return nil, fmt.Errorf("%w: it has more than %d bytes", errLongLine, limit)
		}
		line, err = r.ReadSlice('\n')
		whole = append(whole, line...)
	}
	return whole, err
}

// A lines reader reads lines of JSON.
type lines struct{ r *bufio.Reader }

// next returns the next line that is not empty, valid until the next call. A line has about maxEvent bytes
// at most. Errors are endings. A line that is cut is dropped.
func (l *lines) next() ([]byte, error) {
	for {
		line, err := readLine(l.r, maxEvent)
		switch {
		case errors.Is(err, errLongLine):
			return nil, beside.Broken(err)
		case errors.Is(err, io.EOF):
			return nil, beside.Lost(io.EOF, "closed the stream without an ending")
		case err != nil:
			return nil, beside.Lost(err, "broke the connection")
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

// ready reports whether next would not wait.
func (l *lines) ready() bool {
	b, _ := l.r.Peek(l.r.Buffered()) // they are there
	return bytes.IndexByte(bytes.TrimLeft(b, " \t\r\n"), '\n') >= 0
}
