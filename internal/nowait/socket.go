// Package nowait reads and writes sockets without the cost of calls that may block.
//
// Package syscall prepares the Go scheduler for such calls: it releases the processor to others, and
// wakes the runtime's monitor thread if the process was idle. A non-blocking socket needs neither,
// and a process that is idle between two tokens pays for both with each token.
package nowait

import (
	"net"
	"syscall"
)

// A Socket is a connection's socket. One goroutine at a time reads, and one writes.
type Socket struct {
	raw           syscall.RawConn
	reads, writes try
}

// New returns the socket of a TCP or Unix connection; nil for other connections, and on systems
// whose sockets this package does not know.
func New(nc net.Conn) *Socket {
	sc, ok := nc.(syscall.Conn)
	if !ok || !known {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	s := &Socket{raw: raw}
	s.reads.once, s.writes.once = s.reads.read, s.writes.write
	return s
}

// Read waits until there is something to read, and reads it, as net.Conn.Read does.
func (s *Socket) Read(b []byte) (n int, err error) { return s.reads.do(s.raw.Read, b) }

// Write writes what the kernel takes from b at once, and returns how many bytes that were.
func (s *Socket) Write(b []byte) (n int, err error) { return s.writes.do(s.raw.Write, b) }

// A try is one read or write.
type try struct {
	b    []byte
	n    int
	err  error
	once func(fd uintptr) (done bool) // made once: a closure per call would be an allocation
}

func (t *try) do(do func(func(fd uintptr) bool) error, b []byte) (n int, err error) {
	t.b, t.n, t.err = b, 0, nil
	err = do(t.once)
	t.b = nil
	if err != nil {
		return 0, err
	}
	return t.n, t.err
}
