package kitexrpc

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/netpoll"
)

// A dialer makes connections whose end is noticed whenever it comes.
type dialer struct{ remote.Dialer }

func (d dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := d.Dialer.DialTimeout(network, address, timeout)
	if inner, ok := conn.(netpoll.Connection); ok && err == nil {
		return &watchedConn{Connection: inner}, nil
	}
	return conn, err
}

// A watchedConn has its reader see the end of the connection. Kitex begins to read with the first byte; of a peer that closes before
// it has sent one, such as a proxy with nobody behind it, calls would hear when the keep-alive has given up.
type watchedConn struct {
	netpoll.Connection
	begun atomic.Bool // the reader has
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
			go func() { _ = read(context.Background(), conn) }() // it fails at once, and so does all that waits for it
		}
		return nil
	}
	if err = w.AddCloseCallback(ended); err == nil && !w.IsActive() {
		err = ended(w.Connection) // before the callback was there
	}
	return err
}
