// Package connloss distinguishes a caller that resets a call from a caller whose connection breaks.
// A reset is the caller's choice; a broken connection means that the caller is dead or cut off.
// grpc-go cancels the call's context in both cases and does not say which, so the connection itself
// records that it broke.
package connloss

import (
	"context"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Addr is a peer address that reports whether its connection broke. Servers whose transport
// knows this put an Addr into the peer of a call.
type Addr interface {
	net.Addr
	// Lost reports whether the connection is broken or closed.
	Lost() bool
}

// An Explainer is a peer address that knows why a call is over, because resets on its transport
// carry a cause.
type Explainer interface {
	Addr
	// Why returns why the call is over, or nil if the transport does not know. A nil Path stands
	// for this hop if the reason is SLOW_READER or INVALID, and otherwise for the caller.
	Why() *streamerr.Error
}

// A Doubter is a peer address that can send the peer a heartbeat request.
type Doubter interface {
	Addr
	// Doubt asks the peer for a heartbeat, and breaks the connection if none arrives soon. It does
	// not block.
	Doubt()
}

// DoubterOf returns the Doubter of a call's peer, or nil.
func DoubterOf(call context.Context) Doubter {
	if p, ok := peer.FromContext(call); ok {
		if addr, ok := p.Addr.(Doubter); ok {
			return addr
		}
	}
	return nil
}

// Why returns why a call is over, or nil if its transport carries no causes.
func Why(call context.Context) *streamerr.Error {
	if p, ok := peer.FromContext(call); ok {
		if addr, ok := p.Addr.(Explainer); ok {
			return addr.Why()
		}
	}
	return nil
}

// Lost reports whether the connection of a call is known to be gone.
func Lost(call context.Context) bool {
	p, ok := peer.FromContext(call)
	if !ok {
		return false
	}
	addr, ok := p.Addr.(Addr)
	return ok && addr.Lost()
}

// Sense returns the credentials of a grpc-go server whose streams end with PEER_LOST when their
// caller's connection breaks, and with PEER_RESET only when the caller resets them. Without Sense
// both endings are PEER_RESET.
func Sense(creds credentials.TransportCredentials) credentials.TransportCredentials {
	return sensor{creds}
}

type sensor struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (s sensor) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, auth, err := s.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	sensed := &sensorConn{Conn: conn}
	sensed.remote = &sensorAddr{Addr: conn.RemoteAddr()}
	return sensed, auth, nil
}

// Clone implements credentials.TransportCredentials.
func (s sensor) Clone() credentials.TransportCredentials {
	return sensor{s.TransportCredentials.Clone()}
}

// A sensorConn records when it breaks or is closed. grpc-go reads the error, or closes the
// connection, before it cancels the calls.
type sensorConn struct {
	net.Conn
	remote *sensorAddr
}

func (c *sensorConn) RemoteAddr() net.Addr { return c.remote }

func (c *sensorConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.remote.lost.Store(true)
	}
	return n, err
}

func (c *sensorConn) Close() error {
	c.remote.lost.Store(true)
	return c.Conn.Close()
}

type sensorAddr struct {
	net.Addr
	lost atomic.Bool
}

func (a *sensorAddr) Lost() bool { return a.lost.Load() }
