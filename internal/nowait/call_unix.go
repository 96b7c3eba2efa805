//go:build unix && (!linux || 386)

package nowait

import (
	"errors"
	"syscall"
)

func read(fd int, b []byte) (n int, err error) { return call(syscall.Read, fd, b) }

func write(fd int, b []byte) (n int, err error) { return call(syscall.Write, fd, b) }

// call makes a system call that does not block.
func call(f func(int, []byte) (int, error), fd int, b []byte) (n int, err error) {
	for {
		n, err := f(fd, b)
		if !errors.Is(err, syscall.EINTR) {
			return max(n, 0), err
		}
	}
}
