package grpcserver

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
)

// A sorter looks at the first byte of each connection, and hands those that do not begin like HTTP/2
// to another server. grpc-go runs handshakes in parallel and bounds their time.
type sorter struct {
	credentials.TransportCredentials
	foreign func(net.Conn)
}

// ServerHandshake implements credentials.TransportCredentials.
func (s sorter) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	switch first, err := peek(raw); {
	case err != nil:
		return nil, nil, err
	case first == http2.ClientPreface[0]:
		return s.TransportCredentials.ServerHandshake(raw)
	}
	s.foreign(raw)
	return nil, nil, credentials.ErrConnDispatched
}

// Clone implements credentials.TransportCredentials.
func (s sorter) Clone() credentials.TransportCredentials {
	return sorter{s.TransportCredentials.Clone(), s.foreign}
}

// peek waits for the first byte of a connection, and leaves it unread. Only gRPC comes over a
// connection without a descriptor, such as one in memory.
func peek(nc net.Conn) (first byte, err error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return http2.ClientPreface[0], nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return http2.ClientPreface[0], nil //nolint:nilerr // see above
	}
	var (
		b      [1]byte
		n      int
		failed error
	)
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, failed = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
			if !errors.Is(failed, syscall.EINTR) {
				return !errors.Is(failed, syscall.EAGAIN)
			}
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, io.EOF
	}
	return b[0], nil
}
