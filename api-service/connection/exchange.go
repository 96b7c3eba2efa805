package connection

import (
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/whence-dev/whence/internal/prefetch"
)

// An Exchange is one request of a client, and its answer. No method waits, except AwaitLeft. All
// methods are safe for concurrent use, except Head and Whole.
type Exchange interface {
	// Take leaves the answer to the caller, who calls Free when it has ended. room is called, on a
	// goroutine that must not wait, when Send takes bytes again after it has not taken all. The handler
	// calls Take once.
	Take(room func())
	// Identity reports whether the body of the answer has no chunks.
	Identity() bool
	// Head appends the status and the header of a streamed answer to b, as far as they are bytes of the
	// answer; the body must follow. It completes the header.
	Head(b []byte, h *protocol.ResponseHeader) []byte
	// Whole returns the bytes of an answer in one piece, whose header it completes.
	Whole(r *protocol.Response) ([]byte, error)
	// Send writes the bytes that are accepted at once, and returns their number: 0 if the client reads
	// too slowly.
	Send(b []byte) (n int, err error)
	// Upgrade makes the connection carry another protocol after the response. next waits for
	// input, and returns io.EOF when the client has closed the connection. The caller owns the returned
	// bytes.
	Upgrade() (next func() ([]byte, error))
	// Acknowledged reports whether the client's machine has acknowledged all data sent to it, and how
	// long ago it last acknowledged any. A client that does not read still acknowledges.
	Acknowledged() (all bool, ago time.Duration, err error)
	// Reset ends the exchange, and drops the output that the client has not read.
	Reset()
	// Cut ends the exchange before the answer is complete. The client can read the bytes sent so
	// far, but no end follows.
	Cut()
	// Free ends the exchange after the whole answer. last means that the client may send no further
	// request on the connection.
	Free(last bool)
	// AwaitLeft waits until the client has closed the connection, or for d.
	AwaitLeft(d time.Duration)
	// Late reports whether the connection has one of the last file descriptors: only probes are
	// answered.
	Late() bool
	// Touched adds what Send touches.
	Touched(to *prefetch.List)
}

// An exchange is an Exchange of this package. Hertz knows it as the connection of the request.
type exchange interface {
	network.Conn
	Exchange
	message() *message
	// parse parses the header, and prepares the body. It returns the status of a refusal, or 0.
	parse(h *protocol.RequestHeader) (refusal int)
	isTaken() bool
	// answer writes the response of a handler that has not taken the answer.
	answer(response *protocol.Response)
}

// Of returns the Exchange of a request, or nil if it came by no connection of this package.
func Of(c *app.RequestContext) Exchange {
	x, _ := c.GetConn().(Exchange)
	return x
}

// A Refusal is the reason why the header of a request is refused, before a handler sees the request.
type Refusal int

// The Refusals. Accepted is none.
const (
	Accepted Refusal = iota
	TooMany          // the header has more than 200 fields
	NotHTTP1         // the request is of another version of HTTP
)

// Check reports whether the header of a request can be accepted.
func Check(c *app.RequestContext) Refusal {
	x, ok := c.GetConn().(exchange)
	switch {
	case !ok:
		return Accepted
	case !x.message().head.http1:
		return NotHTTP1
	case x.message().head.fields() > MaxFields:
		return TooMany
	}
	return Accepted
}

// noConn lacks the methods of a connection that nothing calls: Hertz asks only for addresses.
type noConn struct {
	network.Conn
	remote, local net.Addr
}

// RemoteAddr implements net.Conn.
func (c *noConn) RemoteAddr() net.Addr { return c.remote }

// LocalAddr implements net.Conn.
func (c *noConn) LocalAddr() net.Addr { return c.local }
