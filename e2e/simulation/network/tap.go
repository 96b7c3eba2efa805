package network

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/rpc/link/ending"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// A tap reads along on a connection, like a network analyser: it decodes the frames of links when
// they are sent and when they arrive, and notes what becomes of each call. Nothing of what it notes
// reaches the services. The conn's mu guards it.
type tap struct {
	conn         *conn
	sent, came   map[*end]*decoder // by the sending end, by the reading end
	calls        map[uint32]*Call  // streams of bidi methods
	cutRequested bool              // the connection breaks in place of the bytes that are being sent
}

// A decoder collects bytes into frames.
type decoder struct {
	bytes []byte
	parts map[uint32]int // bytes to come of messages in parts, by stream
}

func newTap(c *conn) *tap {
	t := &tap{conn: c, calls: map[uint32]*Call{}, sent: map[*end]*decoder{}, came: map[*end]*decoder{}}
	for _, e := range []*end{c.caller, c.callee} {
		t.sent[e], t.came[e] = &decoder{parts: map[uint32]int{}}, &decoder{parts: map[uint32]int{}}
	}
	return t
}

// wrote takes bytes that an end sends. It reports whether the connection breaks in their place.
func (t *tap) wrote(e *end, b []byte) (cut bool) {
	t.cutRequested = false
	if e == t.conn.caller {
		t.sent[e].decode(b, t.callerSent)
	} else {
		t.sent[e].decode(b, t.calleeSent)
	}
	return t.cutRequested
}

// read takes bytes that an end has received.
func (t *tap) read(e *end, b []byte) {
	if e == t.conn.callee {
		t.came[e].decode(b, t.calleeReceived)
	} else {
		t.came[e].decode(b, t.callerReceived)
	}
}

// decode passes the frames that b completes to take, and each message of theirs as a frame of its
// own: a PART of a message counts as the message when it is the last.
func (d *decoder) decode(b []byte, take func(kind frame.Kind, stream uint32, payload []byte)) {
	d.bytes = append(d.bytes, b...)
	for {
		f, n, err := frame.Decode(d.bytes)
		if err != nil || n == 0 {
			return
		}
		d.bytes = d.bytes[n:]
		switch f.Kind {
		case frame.Items:
			for rest := f.Payload; len(rest) > 0; {
				stream, message, next, err := frame.NextItem(rest)
				if err != nil {
					return
				}
				take(frame.Items, stream, message)
				rest = next
			}
		case frame.Part:
			if stream, left, part, err := frame.ParsePart(f.Payload); err == nil && left == len(part) {
				take(frame.Items, stream, nil) // its bytes are not needed: only short prompts are simulated
			}
		case frame.Open:
			if c, err := frame.ParseOpen(f.Payload); err == nil {
				take(f.Kind, c.Stream, []byte(c.Method))
			}
		case frame.Reset:
			if stream, err := frame.ParseStream(f); err == nil {
				take(f.Kind, stream, nil)
			}
		case frame.End:
			if e, err := frame.ParseEnd(f.Payload); err == nil {
				take(f.Kind, e.Stream, f.Payload)
			}
		default:
		}
	}
}

func (t *tap) callerSent(kind frame.Kind, stream uint32, payload []byte) {
	c := t.calls[stream]
	switch {
	case kind == frame.Open && strings.HasSuffix(string(payload), "/Generate"):
		t.calls[stream] = t.conn.net.newCall(t.conn, string(payload))
	case c == nil:
	case kind == frame.Items:
		c.note(func() {
			if c.request == nil {
				c.request = append([]byte{}, payload...)
			} else {
				c.stops++
			}
		})
		t.message()
	case kind == frame.Reset:
		c.note(func() {
			if c.known.IsZero() {
				c.resetAt, c.known = time.Now(), time.Now()
			}
		})
	}
}

func (t *tap) calleeSent(kind frame.Kind, stream uint32, payload []byte) {
	c := t.calls[stream]
	switch {
	case c == nil:
	case kind == frame.Items:
		c.note(func() {
			c.said, c.last = time.Now(), append([]byte{}, payload...)
			c.sentMsgs++
		})
		t.message()
	case kind == frame.End:
		e, _ := frame.ParseEnd(payload) // decode has parsed it
		c.note(func() {
			c.returned, c.trailer = time.Now(), metadata.MD{}
			for i := 0; i+1 < len(e.Trailers); i += 2 {
				c.trailer.Append(e.Trailers[i], e.Trailers[i+1])
			}
			if err := ending.Err(e.Status); status.Code(err) != codes.Unknown { // io.EOF stands for OK
				c.status = err
			}
		})
	}
}

func (t *tap) calleeReceived(kind frame.Kind, stream uint32, _ []byte) {
	if c := t.calls[stream]; c != nil && kind == frame.Open {
		c.note(func() { c.served = true })
	}
}

func (t *tap) callerReceived(kind frame.Kind, stream uint32, _ []byte) {
	c := t.calls[stream]
	switch {
	case c == nil:
	case kind == frame.Items:
		c.note(func() {
			since := c.receivedAt
			if since.IsZero() {
				since = c.Opened
			}
			c.receivedMsgs, c.receivedAt = c.receivedMsgs+1, time.Now()
			c.quiet = max(c.quiet, c.receivedAt.Sub(since))
		})
	case kind == frame.End:
		c.note(func() {
			if c.known.IsZero() {
				c.known, c.brokeAt = time.Now(), time.Time{}
			}
		})
	}
}

// message counts a message of a bidi call.
func (t *tap) message() {
	n := t.conn.net
	n.mu.Lock()
	n.messages++
	count, p := n.messages, t.conn.path
	t.cutRequested = t.cutRequested || p.cutAfter == 1
	p.cutAfter = max(0, p.cutAfter-1)
	n.mu.Unlock()
	if n.step != nil {
		n.step(count)
	}
}

// cut notes that the connection has broken.
func (t *tap) cut(now time.Time) {
	for _, c := range t.calls {
		c.note(func() {
			if c.known.IsZero() && c.brokeAt.IsZero() {
				c.brokeAt = now
			}
		})
	}
}

// lost notes that an end has closed the connection, or has noticed that it broke.
func (t *tap) lost(e *end) {
	now := time.Now()
	t.cut(now)
	for _, c := range t.calls {
		c.note(func() {
			switch {
			case e == t.conn.callee && c.returned.IsZero() && c.lostAt.IsZero():
				c.lostAt = now
			case e == t.conn.caller && c.known.IsZero():
				c.known = now
			}
		})
	}
}

// delay notes that bytes wait because the path is stalled.
func (t *tap) delay() {
	for _, c := range t.calls {
		c.note(func() { c.delayed = c.delayed || c.known.IsZero() })
	}
}
