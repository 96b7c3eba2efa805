package nowait

import (
	"syscall"
	"unsafe"
)

func read(fd int, b []byte) (n int, err error) { return call(syscall.SYS_READ, fd, b) }

func write(fd int, b []byte) (n int, err error) { return call(syscall.SYS_WRITE, fd, b) }

// call makes a system call that does not block.
func call(trap uintptr, fd int, b []byte) (n int, err error) {
	for {
		n, _, errno := syscall.RawSyscall(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))) //nolint:gosec // the kernel needs the address
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
