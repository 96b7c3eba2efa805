//go:build unix

package nowait

import (
	"errors"
	"io"
	"os"
	"syscall"
)

const supported = true

// read returns false if there is no data to read yet.
func (t *try) read(fd uintptr) (done bool) {
	n, err := read(int(fd), t.b)
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return false
	case err != nil:
		t.err = os.NewSyscallError("read", err)
	case n == 0 && len(t.b) > 0:
		t.err = io.EOF
	default:
		t.n = n
	}
	return true
}

func (t *try) write(fd uintptr) (done bool) {
	n, err := Write(int(fd), t.b)
	t.n = n
	if err != nil {
		t.err = os.NewSyscallError("write", err)
	}
	return true
}

// Write writes the part of b that the kernel accepts at once to a non-blocking socket, and returns
// its length in bytes.
func Write(fd int, b []byte) (n int, err error) {
	for n < len(b) {
		m, err := write(fd, b[n:])
		n += m
		if errors.Is(err, syscall.EAGAIN) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
