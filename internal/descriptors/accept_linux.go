package descriptors

import "syscall"

func accept(ln int) (fd int, peer syscall.Sockaddr, err error) {
	return syscall.Accept4(ln, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
}
