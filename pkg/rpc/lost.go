package rpc

import (
	"context"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// A caller that resets a call has chosen to; one whose connection has broken is dead, or cut off. grpc-go cancels the call's
// context for both, and says no more, so the connection itself has to remember what became of it.

// Losable is what a server's peer address implements where its transport can tell a broken connection from a reset.
type Losable interface {
	net.Addr
	// Lost reports whether the connection is broken or closed.
	Lost() bool
}

// lost reports whether the connection of a call is known to be gone.
func lost(call context.Context) bool {
	p, ok := peer.FromContext(call)
	if !ok {
		return false
	}
	addr, ok := p.Addr.(Losable)
	return ok && addr.Lost()
}

// SenseLoss returns the credentials of a grpc-go server with which streams end with PEER_LOST when their caller's connection
// breaks, and with PEER_RESET only when the caller resets them. Without it both are PEER_RESET.
func SenseLoss(creds credentials.TransportCredentials) credentials.TransportCredentials {
	return sensing{creds}
}

type sensing struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (s sensing) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, auth, err := s.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	sensed := &sensedConn{Conn: conn}
	sensed.remote = &sensedAddr{Addr: conn.RemoteAddr()}
	return sensed, auth, nil
}

// Clone implements credentials.TransportCredentials.
func (s sensing) Clone() credentials.TransportCredentials {
	return sensing{s.TransportCredentials.Clone()}
}

// A sensedConn notes its end. grpc-go reads the error, or closes the connection, before it cancels the calls.
type sensedConn struct {
	net.Conn
	remote *sensedAddr
}

func (c *sensedConn) RemoteAddr() net.Addr { return c.remote }

func (c *sensedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.remote.lost.Store(true)
	}
	return n, err
}

func (c *sensedConn) Close() error {
	c.remote.lost.Store(true)
	return c.Conn.Close()
}

type sensedAddr struct {
	net.Addr
	lost atomic.Bool
}

func (a *sensedAddr) Lost() bool { return a.lost.Load() }
