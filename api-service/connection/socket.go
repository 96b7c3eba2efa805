package connection

import (
	"net"
	"sync"
	"time"
)

// A socket is the transport of a Conn, which holds its mu during each call. No call waits.
type socket interface {
	// send writes the bytes that are accepted at once, and returns their number.
	send(b []byte) (n int, err error)
	// watch sets what the socket reports to its Conn: input (arrived), and room for output after send
	// has not taken everything (writable). The end of the input is reported in both cases (lost).
	watch(input, room bool)
	// acknowledged reports whether the client's machine has acknowledged all data sent to it, and how
	// long ago it last acknowledged any. A client that does not read still acknowledges.
	acknowledged() (all bool, ago time.Duration, err error)
	// closeWrite ends the output.
	closeWrite()
	// close closes the socket. With reset, it drops the unread output.
	close(reset bool)
}

// A Stream is a connection that a Conn serves with a goroutine of its own, such as a connection in
// memory.
type Stream interface {
	net.Conn
	// Send writes the bytes that are accepted at once, and returns their number.
	Send(b []byte) (n int, err error)
	// AwaitRoom waits until Send may accept more bytes, or the connection has failed or was closed.
	AwaitRoom()
	// Acknowledged reports whether the client's machine has acknowledged all data sent to it, and how
	// long ago it last acknowledged any.
	Acknowledged() (all bool, ago time.Duration, err error)
	// CloseWrite ends the output.
	CloseWrite() error
	// ResetOnClose makes Close drop the unread output.
	ResetOnClose()
}

// readSize is the size of the buffer for the input of a Stream, in bytes.
const readSize = 4 << 10

// A streamSocket is the socket of a Stream.
type streamSocket struct {
	Stream
	conn    *Conn
	changed sync.Cond // with the conn's mu: input or closed

	// Guarded by the conn's mu.
	input, room bool // as watch says
	waits       bool // a goroutine waits for room
	closed      bool
}

// run reads until the Conn is closed.
func (s *streamSocket) run() {
	buf := make([]byte, readSize)
	for s.awaitInput() {
		n, err := s.Read(buf)
		if n > 0 {
			s.conn.arrived(buf[:n])
		}
		if err != nil {
			s.conn.lost()
		}
	}
}

// awaitInput waits until input is watched. It returns false once the Conn is closed.
func (s *streamSocket) awaitInput() bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	for !s.input && !s.closed {
		s.changed.Wait()
	}
	return !s.closed
}

func (s *streamSocket) send(b []byte) (int, error) { return s.Send(b) }

func (s *streamSocket) watch(input, room bool) {
	s.input, s.room = input, room
	s.changed.Broadcast()
	if room && !s.waits {
		s.waits = true
		go s.awaitRoom()
	}
}

func (s *streamSocket) awaitRoom() {
	s.AwaitRoom()
	s.conn.mu.Lock()
	s.waits = false
	room := s.room && !s.closed
	s.conn.mu.Unlock()
	if room {
		s.conn.writable()
	}
}

func (s *streamSocket) acknowledged() (bool, time.Duration, error) { return s.Acknowledged() }

func (s *streamSocket) closeWrite() { _ = s.CloseWrite() } // fails only if the connection has failed

func (s *streamSocket) close(reset bool) {
	s.closed = true
	s.changed.Broadcast()
	if reset {
		s.ResetOnClose()
	}
	_ = s.Close() // nothing more is sent
}
