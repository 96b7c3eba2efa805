package kitexrpc

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/netpoll"
)

// A dialer makes connections whose end is noticed even before the first byte.
type dialer struct{ remote.Dialer }

func (d dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := d.Dialer.DialTimeout(network, address, timeout)
	if inner, ok := conn.(netpoll.Connection); ok && err == nil {
		return &watchedConn{Connection: inner}, nil
	}
	return conn, err
}

// A watchedConn notices the end of the connection at once. Kitex begins to read with the first
// byte. If a peer closes before it has sent a byte, such as a proxy without a backend, Kitex would
// fail the calls only after the keep-alive timeout.
type watchedConn struct {
	netpoll.Connection
	begun atomic.Bool // the reader has begun
}

func (w *watchedConn) SetOnRequest(read netpoll.OnRequest) error {
	err := w.Connection.SetOnRequest(func(ctx context.Context, conn netpoll.Connection) error {
		w.begun.Store(true)
		return read(ctx, conn)
	})
	if err != nil {
		return err
	}
	ended := func(conn netpoll.Connection) error {
		if w.begun.CompareAndSwap(false, true) {
			go func() { _ = read(context.Background(), conn) }() // fails at once, and so do all calls that wait for the connection
		}
		return nil
	}
	if err = w.AddCloseCallback(ended); err == nil && !w.IsActive() {
		err = ended(w.Connection) // the connection ended before the callback was registered
	}
	return err
}
