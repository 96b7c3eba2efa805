//go:build !unix

package mux

import (
	"net"
	"syscall"
)

// rawConn returns nil: all writes are left to the goroutine that may block.
func rawConn(net.Conn) syscall.RawConn { return nil }

// A trial would write to a socket without blocking.
type trial struct{}

func (*trial) prepare() {}

func (*trial) write(syscall.RawConn, []byte) (n int, err error) { return 0, nil }
