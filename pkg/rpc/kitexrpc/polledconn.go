package kitexrpc

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/netpoll"

	"github.com/whence-dev/whence/internal/uptime"
	"github.com/whence-dev/whence/pkg/rpc/guard/flood"
)

const (
	// maxUnread bounds the received bytes that Kitex has not read yet. netpoll receives as fast as a
	// peer sends, whatever Kitex reads.
	maxUnread = 16 << 20
	// blockedCheck is the interval at which a blocked write checks the unread bytes: while answers
	// cannot be written, Kitex reads no frames.
	blockedCheck = 20 * time.Millisecond
)

// A polledConn is a connection of netpoll that ends after a flood of frames, if it has too many
// unread bytes, or if its peer does not read for a long time.
type polledConn struct {
	netpoll.Connection
	meter   *flood.Meter
	flooded flood.Report
	blocked *time.Timer  // runs check during a write
	since   atomic.Int64 // when the write began, on the clock of package uptime; 0 if no write is running

	mu     sync.Mutex // guards the following fields
	closed bool
	end    func() // ends the transport; nil until it has begun
}

func newPolledConn(conn netpoll.Connection, m meteredGRPC) *polledConn {
	c := &polledConn{Connection: conn, meter: flood.NewMeter(m.maxStreams, true), flooded: m.flooded}
	c.blocked = time.AfterFunc(time.Hour, c.check)
	c.blocked.Stop()
	return c
}

// onClose registers the function that ends the transport. Kitex's own close does not wake the
// goroutine that reads frames while it waits for answers to be written, and netpoll keeps receiving
// until this goroutine returns.
func (c *polledConn) onClose(end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
	if c.closed {
		go end() // ends soon: it waits for nothing
	}
}

// Close implements net.Conn.
func (c *polledConn) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	if first && c.end != nil {
		go c.end() // not here: the transport that it ends may hold locks
	}
	c.mu.Unlock()
	return c.Connection.Close()
}

// fail closes the connection because of what its peer does.
func (c *polledConn) fail(err error) error {
	flood.Close(c, err, c.flooded)
	return err
}

// received follows the bytes that Kitex has read.
func (c *polledConn) received(b []byte) error {
	if err := c.meter.Received(b); err != nil {
		return c.fail(err)
	}
	return c.bounded()
}

func (c *polledConn) bounded() error {
	if c.Connection.Reader().Len() > maxUnread {
		return c.fail(fmt.Errorf("%w: more than %d unread bytes", flood.ErrFlood, maxUnread))
	}
	return nil
}

// Read implements net.Conn.
func (c *polledConn) Read(b []byte) (int, error) {
	n, err := c.Connection.Read(b)
	if err == nil {
		err = c.received(b[:n])
	}
	return n, err
}

// Write implements net.Conn. Kitex writes from one goroutine.
func (c *polledConn) Write(b []byte) (int, error) {
	c.since.Store(int64(uptime.Now()))
	c.blocked.Reset(blockedCheck)
	n, err := c.Connection.Write(b)
	c.since.Store(0)
	c.blocked.Stop()
	c.meter.Sent(b[:n])
	return n, err
}

// check ends the connection if the running write has been blocked for too long.
func (c *polledConn) check() {
	since := c.since.Load()
	if since == 0 {
		return
	}
	if uptime.Now()-time.Duration(since) > DefaultWriteTimeout {
		_ = c.fail(fmt.Errorf("%w: the peer has not read for %v", flood.ErrFlood, DefaultWriteTimeout))
		return
	}
	if c.bounded() == nil {
		c.blocked.Reset(blockedCheck)
	}
}

// Reader implements netpoll.Connection.
func (c *polledConn) Reader() netpoll.Reader { return polledReader{c.Connection.Reader(), c} }

// A polledReader is the reader of a polledConn. Kitex reads frames only with Next.
type polledReader struct {
	netpoll.Reader
	conn *polledConn
}

// Next implements netpoll.Reader.
func (r polledReader) Next(n int) ([]byte, error) {
	b, err := r.Reader.Next(n)
	if err == nil {
		err = r.conn.received(b)
	}
	return b, err
}
