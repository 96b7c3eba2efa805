package overhttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// lines returns a function that reads one line that is not empty after the other. A line is valid until
// the next call, and has at most maxEvent bytes. Errors are endings. A line that is cut is dropped.
func lines(r io.Reader) (next func() ([]byte, error)) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 16<<10), maxEvent)
	scanner.Split(wholeLines)
	return func() ([]byte, error) {
		for scanner.Scan() {
			if line := bytes.TrimSpace(scanner.Bytes()); len(line) > 0 {
				return line, nil
			}
		}
		switch err := scanner.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			return nil, beside.Broken(fmt.Errorf("a line of more than %d bytes", maxEvent))
		case err != nil:
			return nil, beside.Lost(err, "broke the connection")
		default:
			return nil, beside.Lost(io.EOF, "closed the stream without an ending")
		}
	}
}

// wholeLines is bufio.ScanLines without a last line that has no end.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if end := bytes.IndexByte(data, '\n'); end >= 0 {
		return end + 1, data[:end], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}
