// Package clientconn owns the connection of a client while one request of that client is answered.
//
// All of an answer is written while the handler of its request runs, and a write may wait for a client that does not read. Kill
// resets the connection, which ends such a write at once. So a stop, a deadline or a drain never waits for a client: once a stream
// is stopped, a write may wait for the grace of a stream, and then the connection is killed.
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

	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Client is the name of the client in paths.
const Client = "client"

// tellWithin is how long a write may wait for its client once the stream is stopped.
const tellWithin = 250 * time.Millisecond

// A Conn is a client's connection during one request. The methods that it adds to network.Conn are safe for
// concurrent use.
type Conn struct {
	network.Conn
	request *app.RequestContext
	silence *silence // nil where it cannot be measured, or is not bounded
	undo    []func() bool

	mu       sync.Mutex // guards the following fields
	flushes  uint64     // how many were begun
	flushing bool       // the last of them waits
	stopped  bool       // the stream was stopped
	released bool       // the handler is about to return, and the connection may serve another request
}

// Take takes over the connection of c for one request. The handler calls GiveBack before it returns.
func Take(c *app.RequestContext) *Conn {
	client := &Conn{Conn: c.GetConn(), request: c}
	c.SetConn(client)
	return client
}

// BoundSilence calls vanished and kills the connection when the client's machine has acknowledged nothing for
// timeout; 0 means no bound. It is called at most once.
func (c *Conn) BoundSilence(timeout time.Duration, vanished func(*streamerr.Error)) {
	fd, ok := socket(c.Conn)
	if !ok || timeout == 0 {
		return
	}
	c.silence = watchSilence(c, fd, timeout, func(message string) {
		gone := Gone()
		gone.Message = message
		vanished(gone)
	})
}

// EndWith bounds how long writes wait for the client once the stream of ctx is stopped. A write that has waited since before the
// stop ends with ctx at the latest. It is called at most once.
func (c *Conn) EndWith(ctx context.Context) {
	held := make(chan uint64, 1) // the write that waited when the stream was stopped
	stopped := stream.AfterStop(ctx, func(error) {
		if n, flushing := c.stop(); flushing {
			held <- n
		}
	})
	killed := context.AfterFunc(ctx, func() {
		select {
		case n := <-held:
			c.expire(n)
		default:
		}
	})
	c.undo = []func() bool{stopped, killed}
}

func (c *Conn) stop() (n uint64, flushing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.flushing {
		c.bound()
	}
	return c.flushes, c.flushing
}

// bound has the write that waits end in time. mu is held.
func (c *Conn) bound() {
	n := c.flushes
	time.AfterFunc(tellWithin, func() { c.expire(n) })
}

// expire kills the connection if the n-th write waits still.
func (c *Conn) expire(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flushing && c.flushes == n {
		c.kill()
	}
}

// Flush implements network.Conn. It waits until the kernel has accepted all data, or the write times out.
func (c *Conn) Flush() error {
	c.mu.Lock()
	c.flushing = true
	c.flushes++
	if c.stopped {
		c.bound()
	}
	c.mu.Unlock()
	err := c.Conn.Flush()
	c.mu.Lock()
	c.flushing = false
	c.mu.Unlock()
	return err
}

// Kill resets the connection. A write that waits for the client fails at once, and so does every later one.
func (c *Conn) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kill()
}

func (c *Conn) kill() {
	if c.released {
		return
	}
	// The handler is still running, so netpoll keeps the descriptor until the handler has returned. The connection is
	// reset rather than closed, so that the kernel drops the unread data, and a TLS front before the edge notices at
	// once.
	if fd, ok := socket(c.Conn); ok {
		reset(fd)
	}
	_ = c.Close() // netpoll's never fails
}

// GiveBack gives the connection back to the server.
func (c *Conn) GiveBack() {
	for _, undo := range c.undo {
		undo()
	}
	c.request.SetConn(c.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = true
	c.silence.stop()
}

// Gone is the ending of a stream whose client has closed its connection.
func Gone() *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(Client), Message: "the client closed its connection"}
}

// Unwritten is the ending of a stream when a write to its client has failed with err. timeout is the bound of a
// write.
func Unwritten(err error, timeout time.Duration) *streamerr.Error {
	if errors.Is(err, netpoll.ErrWriteTimeout) {
		return &streamerr.Error{Reason: streamerr.SlowReader, Message: fmt.Sprintf("the client did not read for %v", timeout), Cause: err}
	}
	gone := Gone()
	gone.Cause = err
	return gone
}

// Respond writes the response of c, whose body must be complete. The server itself would write it only after the
// handler has returned, when the connection is no longer watched.
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

// written replaces a response that has been written, so that the server writes nothing more.
type written struct{}

// Write implements network.ExtWriter.
func (written) Write([]byte) (int, error) {
	return 0, errors.New("clientconn: the response is complete")
}

// Flush implements network.ExtWriter.
func (written) Flush() error { return nil }

// Finalize implements network.ExtWriter.
func (written) Finalize() error { return nil }
