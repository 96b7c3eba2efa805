package clientconn

import (
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/whence-dev/whence/api-service/edge/sse"
)

// Events describes an answer that is a sequence of events.
type Events struct {
	// First is how long the headers wait for the first event. Proxies and clients give up on silent
	// connections, so the wait is bounded.
	First time.Duration
	// KeepAlive is the time without an event after which a comment is sent; 0 means no comments.
	KeepAlive time.Duration
	// Ping encodes an event that is sent instead of comments; nil means comments.
	Ping func(lines *sse.Encoder)
	// Lines reports that the events are lines of JSON, without comments.
	Lines bool
	// Opened is called once, before the headers are sent, and may add headers; it may be nil.
	Opened func(h *protocol.ResponseHeader)
	// Sent is called with the number of events that the kernel has accepted, and the time since the
	// connection was taken; it may be nil. No function may use the Conn.
	Sent func(at time.Duration, events int)
}

// Begin begins an answer of events. The first Write or the timer sends the headers.
func (c *Conn) Begin(e Events) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.events, c.sent = &e, e.Sent
	c.clock.open(now+e.First, e.KeepAlive)
	c.arm(now)
}

// OnSent sets the callback for sent events of answers other than SSE. The caller calls OnSent
// before it writes the first event.
func (c *Conn) OnSent(sent func(at time.Duration, events int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = sent
}

// Identity reports whether the client does not support chunks: it speaks HTTP/1.0.
func (c *Conn) Identity() bool { return c.identity }

// heads has buffers for the headers and the first events.
var heads = sync.Pool{New: func() any { return new([]byte) }}

// open appends the headers of the events to b. mu is held.
func (c *Conn) open(b []byte) []byte {
	c.opened = true
	c.clock.opened()
	h := &c.response.Header
	h.Set("X-Accel-Buffering", "no")
	h.Set("Cache-Control", "no-cache") // proxies must not cache events
	h.SetContentType("text/event-stream; charset=utf-8")
	if c.events.Lines {
		h.SetContentType("application/x-ndjson")
	}
	if c.events.Opened != nil {
		c.events.Opened(h)
	}
	b = c.exchange.Head(b, h)
	c.answered()
	return b
}

// ping returns the bytes that a silent stream sends. mu is held.
func (c *Conn) ping() []byte {
	lines := sse.Encoder{Identity: c.identity, Lines: c.events != nil && c.events.Lines}
	if c.events != nil && c.events.Ping != nil {
		c.events.Ping(&lines)
	} else {
		lines.KeepAlive()
	}
	encoded, _ := lines.Take() // and never Release: the caller uses the bytes
	return encoded
}

// EndComments stops the comments, and reports whether the headers of the events have been sent.
func (c *Conn) EndComments() (opened bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock.close()
	return c.opened
}

// Send writes b and waits until the client has taken it.
func (c *Conn) Send(b []byte, events int) error {
	waits, err := c.Write(b, events)
	if err == nil && waits {
		err = c.Flush()
	}
	return err
}

// Respond writes the response, which fill completes; a nil fill changes nothing. The headers of
// events must not have been sent. The server itself would write the response only after the handler
// has returned, when the connection is no longer watched.
func (c *Conn) Respond(fill func(r *protocol.Response)) error {
	c.mu.Lock()
	r := c.response
	if fill != nil {
		fill(r)
	}
	out, err := c.exchange.Whole(r)
	c.events = nil // out contains the headers
	c.answered()
	c.mu.Unlock()
	if err == nil {
		err = c.Send(out, 0)
	}
	if err != nil {
		c.Cut() // the response may have been sent in part
	}
	return err
}

// Upgrade makes the connection carry another protocol after the response. next waits for what the
// client sends, and returns io.EOF when the client has closed the connection.
func (c *Conn) Upgrade() (next func() ([]byte, error)) { return c.exchange.Upgrade() }
