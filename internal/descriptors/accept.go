package descriptors

import (
	"net"
	"syscall"
)

// Accept takes the next connection from a listener that does not block, given its descriptor. Neither
// does the connection's descriptor block. peer is nil for a connection that was refused, because there
// was no descriptor for it.
func Accept(ln int) (fd int, peer net.Addr, err error) {
	fd, from, err := accept(ln)
	switch {
	case IsExhausted(err):
		return -1, nil, Drop(ln)
	case err != nil:
		return -1, nil, err
	}
	return fd, address(from), nil
}

// address returns the address of a peer.
func address(peer syscall.Sockaddr) *net.TCPAddr {
	switch peer := peer.(type) {
	case *syscall.SockaddrInet4:
		return &net.TCPAddr{IP: peer.Addr[:], Port: peer.Port}
	case *syscall.SockaddrInet6:
		a := &net.TCPAddr{IP: peer.Addr[:], Port: peer.Port}
		if peer.ZoneId != 0 {
			if i, err := net.InterfaceByIndex(int(peer.ZoneId)); err == nil {
				a.Zone = i.Name
			}
		}
		return a
	default:
		return &net.TCPAddr{}
	}
}
