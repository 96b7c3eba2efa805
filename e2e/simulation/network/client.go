package network

import (
	"net"
	"time"

	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/e2e/simulation/client"
)

// Connect opens a connection of a client with a name to a host: near is the client's end, which leaves
// at most window bytes unread, and far is the end of the server.
func (n *Network) Connect(name string, to *Host, window int) (near client.Conn, far connection.Stream) {
	n.mu.Lock()
	n.serial++
	serial := n.serial
	n.mu.Unlock()
	c := newConn(&Host{net: n, name: name}, to, serial)
	c.caller.room = window
	return c.caller, serverEnd{c.callee}
}

// Address is the address of both ends of a client's connection for the server.
var Address net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}

// A serverEnd is the server's end of a client's connection.
type serverEnd struct{ *end }

// LocalAddr implements net.Conn.
func (serverEnd) LocalAddr() net.Addr { return Address }

// RemoteAddr implements net.Conn.
func (serverEnd) RemoteAddr() net.Addr { return Address }

// Send implements connection.Stream.
func (s serverEnd) Send(b []byte) (n int, err error) { return direct{s.end}.Write(b) }

// AwaitRoom implements connection.Stream.
func (s serverEnd) AwaitRoom() {
	for {
		s.conn.mu.Lock()
		waits := !s.closed && s.failed == nil && s.peer.size >= s.peer.room
		if waits && s.full.IsZero() {
			s.full = time.Now()
		}
		s.conn.mu.Unlock()
		if !waits {
			return
		}
		<-s.writable
	}
}

// Acknowledged implements connection.Stream: bytes are acknowledged when they arrive.
func (s serverEnd) Acknowledged() (all bool, ago time.Duration, err error) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	now := time.Now()
	if !s.dropped.IsZero() {
		return false, now.Sub(s.dropped), nil
	}
	for _, sent := range s.peer.unread {
		if s.conn.arrival(sent.due).After(now) {
			return false, now.Sub(sent.due), nil
		}
	}
	return true, 0, nil
}

// CloseWrite implements connection.Stream.
func (s serverEnd) CloseWrite() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.endWrites()
	wake(s.peer.readable)
	return nil
}

// ResetOnClose implements connection.Stream.
func (s serverEnd) ResetOnClose() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.resets = true
}
