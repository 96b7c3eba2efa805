package flood

import (
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// A Report is called when a connection is closed because of a flood. It may be nil.
type Report func(peer net.Addr, err error)

// Conn is a connection whose frames a Meter follows.
type Conn struct {
	net.Conn
	meter  *Meter
	report Report
}

// FromConn returns conn, from its first byte on, with a Meter for maxStreams streams. A read fails
// after a flood, and the server then closes the connection.
func FromConn(conn net.Conn, maxStreams uint32, report Report) *Conn {
	return &Conn{conn, NewMeter(maxStreams, true), report}
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if flood := c.meter.Received(b[:n]); flood != nil {
		Close(c.Conn, flood, c.report)
		return 0, flood
	}
	return n, err
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.meter.Sent(b[:n])
	return n, err
}

// Close closes a connection because of a flood, and reports it. The peer's unread frames would turn
// a GOAWAY into a reset, so none is sent.
func Close(conn net.Conn, flood error, report Report) {
	if report != nil && errors.Is(flood, ErrFlood) {
		report(conn.RemoteAddr(), flood)
	}
	_ = conn.Close()
}

// Credentials returns the credentials of a grpc-go server whose connections have a Meter.
func Credentials(creds credentials.TransportCredentials, maxStreams uint32, report Report) credentials.TransportCredentials {
	return handshaker{creds, maxStreams, report}
}

type handshaker struct {
	credentials.TransportCredentials
	maxStreams uint32
	report     Report
}

// ServerHandshake implements credentials.TransportCredentials.
func (h handshaker) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, auth, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return FromConn(conn, h.maxStreams, h.report), auth, nil
}

// Clone implements credentials.TransportCredentials.
func (h handshaker) Clone() credentials.TransportCredentials {
	return handshaker{h.TransportCredentials.Clone(), h.maxStreams, h.report}
}
