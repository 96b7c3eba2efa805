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

// A tap reads along on the connection of a link, like a network analyser: it decodes the frames of links when
// they are sent and when they arrive, and records the state of each call. The services do not see the
// records. The conn's mu guards it. A nil tap records nothing.
type tap struct {
	conn         *conn
	sent, came   map[*end]*decoder // by the sending end, by the reading end
	calls        map[uint32]*Call  // streams of bidi methods
	cutRequested bool              // the connection breaks in place of the bytes that are being sent
}

// A decoder collects bytes into frames.
type decoder struct {
	bytes []byte
	total int               // bytes so far
	until int               // bytes after this many are not decoded; 0 means all are
	parts map[uint32][]byte // the beginnings of messages in parts, by stream
}

func newTap(c *conn) *tap {
	t := &tap{conn: c, calls: map[uint32]*Call{}, sent: map[*end]*decoder{}, came: map[*end]*decoder{}}
	for _, e := range []*end{c.caller, c.callee} {
		t.sent[e], t.came[e] = &decoder{parts: map[uint32][]byte{}}, &decoder{parts: map[uint32][]byte{}}
	}
	return t
}

// wrote takes bytes that an end sends. It reports whether the connection breaks in their place.
func (t *tap) wrote(e *end, b []byte) (cut bool) {
	if t == nil {
		return false
	}
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
	if t == nil {
		return
	}
	if e == t.conn.callee {
		t.came[e].decode(b, t.calleeReceived)
	} else {
		t.came[e].decode(b, t.callerReceived)
	}
}

// decode passes the frames that b completes to take, and each message of theirs as a frame of its
// own: a PART of a message counts as the message when it is the last.
func (d *decoder) decode(b []byte, take func(kind frame.Kind, stream uint32, payload []byte)) {
	if d.until > 0 {
		b = b[:max(0, min(len(b), d.until-d.total))]
	}
	d.total += len(b)
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
			if stream, left, part, err := frame.ParsePart(f.Payload); err == nil {
				d.parts[stream] = append(d.parts[stream], part...)
				if left == len(part) {
					take(frame.Items, stream, d.parts[stream])
					delete(d.parts, stream)
				}
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

// forges returns the frame that the protocol forbids and that an end is to send now, or nil. The
// connection counts as broken from then on.
func (t *tap) forges(e *end) []byte {
	if t == nil || len(t.sent[e].bytes) > 0 || t.conn.broken {
		return nil
	}
	n := t.conn.net
	n.mu.Lock()
	which := t.conn.path.forge - 1
	mine := which >= 0 && (which%2 == 0) == (e == t.conn.caller)
	if mine {
		t.conn.path.forge = 0
	}
	n.mu.Unlock()
	if !mine {
		return nil
	}
	live := uint32(1)
	for id, c := range t.calls {
		if c.isOpen() {
			live = max(live, id)
		}
	}
	t.cut(time.Now())
	t.came[e.peer].until = max(1, t.sent[e].total) // the link ends there
	return forgery(which/2, live)
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
	if t == nil {
		return
	}
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
	if t == nil {
		return
	}
	now := time.Now()
	t.cut(now)
	if e == t.conn.caller {
		t.conn.net.mu.Lock()
		t.conn.path.lost = append(t.conn.path.lost, now)
		t.conn.net.mu.Unlock()
	}
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
	if t == nil {
		return
	}
	for _, c := range t.calls {
		c.note(func() { c.delayed = c.delayed || c.known.IsZero() })
	}
}
