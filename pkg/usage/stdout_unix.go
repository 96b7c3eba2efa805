//go:build unix

package usage

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openStandardOutput returns the standard output under another descriptor. The Go runtime ends a
// process that writes to descriptor 1 after the reader of the pipe has left. A write to any other
// descriptor returns an error instead.
func openStandardOutput() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(syscall.Stdout), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate the standard output: %w", err)
	}
	return os.NewFile(uintptr(fd), os.Stdout.Name()), nil
}
