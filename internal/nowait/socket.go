// Package nowait reads and writes sockets without the overhead of calls that may block.
//
// For calls that may block, package syscall prepares the Go scheduler: it releases the processor,
// and wakes the runtime's monitor thread if the process was idle. A non-blocking socket needs
// neither, and a process that is idle between two tokens pays for both with each token.
package nowait

import (
	"net"
	"syscall"
)

// A ReadWriter reads and writes a connection. One goroutine at a time may read, and one may write.
type ReadWriter interface {
	// Read blocks until there is data, and reads it, as net.Conn.Read does.
	Read(b []byte) (n int, err error)
	// Write writes the part of b that is accepted at once, and returns its length in bytes.
	Write(b []byte) (n int, err error)
}

// A Direct connection has a ReadWriter of its own, such as a connection in memory.
type Direct interface{ NoWait() ReadWriter }

// A Socket is the socket of a connection. One goroutine at a time may read, and one may write.
type Socket struct {
	raw           syscall.RawConn
	reads, writes try
}

// New returns the ReadWriter of a TCP, Unix or Direct connection. It returns nil for other
// connections, and for sockets on systems that this package does not support.
func New(nc net.Conn) ReadWriter {
	if d, ok := nc.(Direct); ok {
		return d.NoWait()
	}
	sc, ok := nc.(syscall.Conn)
	if !ok || !supported {
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

// Read implements ReadWriter.
func (s *Socket) Read(b []byte) (n int, err error) { return s.reads.do(s.raw.Read, b) }

// Write implements ReadWriter.
func (s *Socket) Write(b []byte) (n int, err error) { return s.writes.do(s.raw.Write, b) }

// A try is one read or write.
type try struct {
	b    []byte
	n    int
	err  error
	once func(fd uintptr) (done bool) // made once, because a closure per call would be an allocation
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
