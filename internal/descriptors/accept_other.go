//go:build !linux

package descriptors

import "syscall"

func accept(ln int) (fd int, peer syscall.Sockaddr, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if fd, peer, err = syscall.Accept(ln); err == nil {
		syscall.CloseOnExec(fd)
		_ = syscall.SetNonblock(fd, true) // never fails for a socket
	}
	return fd, peer, err
}
