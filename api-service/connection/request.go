package connection

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/protocol"
	"github.com/cloudwego/hertz/pkg/protocol/http1/resp"

	"github.com/whence-dev/whence/internal/prefetch"
)

// chunked and untilClose are Hertz's content lengths for a chunked body, and for a body that ends
// with the connection.
const (
	chunked    = -1
	untilClose = -2
)

// A request is the Exchange of a request of HTTP/1.
type request struct {
	noConn
	msg message

	conn    *Conn
	raw     []byte    // the header
	old     bool      // HTTP/1.0
	closes  bool      // the client asks for the end of the connection after the answer
	changed sync.Cond // with the conn's mu: input, room, or the end

	// Guarded by the conn's mu.
	last    bool   // no further request is answered
	taken   bool   // a handler has taken the answer
	room    func() // of Take
	late    bool   // the request, or a client that should read, is too late
	over    bool   // the answer has ended
	skipped int    // bytes of the body that were dropped

	upgraded bool // the connection carries another protocol
}

// serve answers the request.
func (r *request) serve() {
	r.remote, r.local = r.conn.remote, r.conn.local
	r.conn.server.handle(r, &r.conn.ctx)
}

// parse implements exchange.
func (r *request) parse(h *protocol.RequestHeader) (refusal int) {
	refusal = r.msg.parse(h, r.raw, r)
	r.raw, r.old, r.closes = nil, !h.IsHTTP11(), h.ConnectionClose()
	switch {
	case refusal != 0:
		r.old, r.closes, r.msg.body = false, true, Body{err: errClosed} // what follows is unknown
	case !r.msg.body.Unread():
		r.conn.allArrived(r)
	}
	return refusal
}

// allArrived stops the timer of the request's arrival.
func (c *Conn) allArrived(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == answering && c.request == r && !r.over {
		c.timer.Stop()
	}
}

// answer implements exchange. It waits until the client has taken the response.
func (r *request) answer(response *protocol.Response) {
	out, err := r.Whole(response)
	if err != nil || !r.writeAll(out) {
		r.Reset()
		return
	}
	r.Free(response.ConnectionClose())
}

// writeAll writes bytes. It returns false if the client does not take them.
func (r *request) writeAll(b []byte) (written bool) {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.taken, r.late = true, false
	return r.push(b) == nil
}

// push sends bytes, and waits for room: in an answer as long as a write may wait, and before it as long as
// the body of the request may take. The conn's mu is held.
func (r *request) push(b []byte) error {
	c := r.conn
	for !r.over {
		n, err := c.send(b)
		if b = b[n:]; len(b) == 0 || err != nil {
			return err
		}
		if r.taken {
			c.timer.Stop()
			if c.server.Write > 0 {
				c.timer.Reset(c.server.Write)
			}
		}
		for c.full && !r.over && !r.late && c.phase == answering {
			r.changed.Wait()
		}
		if r.late {
			return os.ErrDeadlineExceeded
		}
	}
	return errClosed
}

func (r *request) isTaken() bool {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	return r.taken
}

func (r *request) message() *message { return &r.msg }

// Take implements Exchange.
func (r *request) Take(room func()) {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.taken, r.room = true, room
	r.conn.regulate()
}

// Identity implements Exchange.
func (r *request) Identity() bool { return r.old }

// ends decides whether the connection ends after the answer, whose header says so.
func (r *request) ends(asked bool) (last bool) {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.last = r.last || asked || r.conn.server.draining.Load() || r.msg.body.Unread() && !r.msg.body.skippable()
	return r.last
}

func (r *request) isUpgraded() bool {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	return r.upgraded
}

// Head implements Exchange.
func (r *request) Head(b []byte, h *protocol.ResponseHeader) []byte {
	h.SetContentLength(chunked)
	if r.old {
		h.SetContentLength(untilClose)
	}
	if r.ends(r.old || h.ConnectionClose()) {
		h.SetConnectionClose(true) // but not because the client has said so
	}
	return append(b, h.Header()...)
}

// Whole implements Exchange.
func (r *request) Whole(response *protocol.Response) ([]byte, error) {
	switch {
	case r.isUpgraded():
	case r.ends(r.closes || response.ConnectionClose()):
		response.SetConnectionClose()
	case r.old:
		response.Header.Set("Connection", "keep-alive")
	}
	var out buffer
	err := resp.Write(response, &out)
	return out, err
}

// Send implements Exchange.
func (r *request) Send(b []byte) (n int, err error) {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	if r.over {
		return 0, errClosed
	}
	return r.conn.send(b)
}

// Upgrade implements Exchange.
func (r *request) Upgrade() (next func() ([]byte, error)) {
	r.conn.allArrived(r)
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.last, r.upgraded = true, true
	return r.receive
}

// receive waits for input of another protocol than HTTP.
func (r *request) receive() ([]byte, error) {
	c := r.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case r.over || c.phase != answering:
			return nil, errClosed
		case len(c.in) > 0:
			b := c.in
			c.consume(len(b))
			c.regulate()
			return b, nil
		case c.left:
			return nil, io.EOF
		}
		r.changed.Wait()
	}
}

// Acknowledged implements Exchange.
func (r *request) Acknowledged() (all bool, ago time.Duration, err error) {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	if r.over || r.conn.phase == over {
		return false, 0, errClosed
	}
	return r.conn.sock.acknowledged()
}

// Reset implements Exchange.
func (r *request) Reset() { r.end(func() { r.conn.finish(true) }) }

// Cut implements Exchange.
func (r *request) Cut() { r.end(r.conn.shut) }

// Free implements Exchange.
func (r *request) Free(last bool) {
	r.end(func() {
		r.last = r.last || r.closes || last
		r.conn.ended()
	})
}

// end ends the exchange, once.
func (r *request) end(how func()) {
	c := r.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.over {
		return
	}
	r.over, r.room = true, nil
	r.changed.Broadcast()
	if c.phase != over {
		how()
	}
}

// AwaitLeft implements Exchange.
func (r *request) AwaitLeft(d time.Duration) {
	left := make(chan struct{})
	undo := r.conn.afterLeft(func() { close(left) })
	defer undo()
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-left:
	case <-late.C:
	}
}

// Late implements Exchange.
func (r *request) Late() bool { return r.conn.late }

// Touched implements Exchange.
func (r *request) Touched(to *prefetch.List) { to.Add(prefetch.Of(r), prefetch.Of(r.conn)) }
