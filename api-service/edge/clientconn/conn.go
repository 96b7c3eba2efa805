// Package clientconn owns the connection of a client while one request of that client is answered.
//
// All of an answer is written while the handler of its request runs, and a write may wait for a client that does not read. Kill
// closes the connection, which ends such a write at once. So a stop, a deadline or a drain never waits for a client: it kills the
// connection of a client that has not read the ending within the grace of the stream.
//
// The package also notices that a client has vanished without a word: its machine has lost power, or a network between has dropped
// the connection.
package clientconn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/protocol/http1/resp"
	"github.com/cloudwego/netpoll"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// Client is the name of the client in paths.
const Client = "client"

// A Conn is a client's connection during one request. All methods are safe for concurrent use.
type Conn struct {
	conn     network.Conn
	silence  *silence // nil where it cannot be measured, or is not bounded
	unfollow func() bool

	mu       sync.Mutex // guards the following field
	released bool       // the handler has returned, and the connection may serve another request
}

// Take takes over the connection of c for one request. The handler calls Release before it returns.
func Take(c *app.RequestContext) *Conn { return &Conn{conn: c.GetConn()} }

// BoundSilence calls vanished, and closes the connection, when the client's machine has acknowledged nothing for timeout; 0 is no
// bound. It is called at most once.
func (c *Conn) BoundSilence(timeout time.Duration, vanished func(*streamerr.Error)) {
	fd, ok := socket(c.conn)
	if !ok || timeout == 0 {
		return
	}
	c.silence = watchSilence(c, fd, timeout, func(message string) {
		gone := Gone()
		gone.Message = message
		vanished(gone)
	})
}

// KillWith kills the connection when ctx is done. It is called at most once.
func (c *Conn) KillWith(ctx context.Context) { c.unfollow = context.AfterFunc(ctx, c.Kill) }

// Kill closes the connection. A write that waits for the client fails at once, and so does every later one.
func (c *Conn) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.released {
		// A handler may still run, so netpoll keeps the descriptor until it has returned.
		_ = c.conn.Close() // netpoll's never fails
	}
}

// Release gives the connection back to the server.
func (c *Conn) Release() {
	if c.unfollow != nil {
		c.unfollow()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = true
	c.silence.stop()
}

// Gone is the ending of a stream whose client has closed its connection.
func Gone() *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(Client), Message: "the client closed its connection"}
}

// Unwritten is the ending of a stream whose client could not be written to because of err. timeout bounds a write.
func Unwritten(err error, timeout time.Duration) *streamerr.Error {
	if errors.Is(err, netpoll.ErrWriteTimeout) {
		return &streamerr.Error{Reason: streamerr.SlowReader, Message: fmt.Sprintf("the client did not read for %v", timeout), Cause: err}
	}
	gone := Gone()
	gone.Cause = err
	return gone
}

// Respond writes the response of c, whose body is complete. The server itself would write it only after the handler has returned,
// when nobody watches over the connection any more.
func Respond(c *app.RequestContext) error {
	if c.Request.Header.ConnectionClose() || !c.Request.Header.IsHTTP11() {
		c.SetConnectionClose()
	}
	out := c.GetWriter()
	err := resp.Write(&c.Response, out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		_ = c.GetConn().Close() // a part of it may have been sent
	}
	c.Response.HijackWriter(written{})
	return err
}

// written stands for a response that was written, so that the server writes nothing more.
type written struct{}

// Write implements network.ExtWriter.
func (written) Write([]byte) (int, error) {
	return 0, errors.New("clientconn: the response is complete")
}

// Flush implements network.ExtWriter.
func (written) Flush() error { return nil }

// Finalize implements network.ExtWriter.
func (written) Finalize() error { return nil }
