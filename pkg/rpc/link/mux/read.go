package mux

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/rpc/link/inbox"
	"github.com/whence-dev/whence/pkg/rpc/loop"
)

// readBuffer is the length of a connection's read buffer: two of the longest frames.
const readBuffer = 2 * (frame.HeaderSize + frame.MaxPayload)

// A connReader is the goroutine that reads a connection, and carries the messages of a batch to the
// readers of their streams. When one of them has to wait, another goroutine goes on behind the message
// in hand.
type connReader struct {
	conn *Conn
	loop *loop.Loop

	// Not changed while a message is with its reader.
	buf    []byte
	at     int            // offset in bytes of the first byte that was not taken
	have   int            // number of bytes in buf
	items  []byte         // the messages of the ITEMS frame in hand that were not taken
	broken error          // why the connection ends behind the batch; nil while frames are read
	due    []*inbox.Inbox // of streams with messages that are handed to their readers at the end of the batch
}

// errLeft ends a goroutine that another one has replaced.
var errLeft = errors.New("link: another goroutine reads the connection")

// newConnReader returns the connReader of a connection, behind the bytes that have come already.
func newConnReader(c *Conn, have []byte) *connReader {
	r := &connReader{conn: c, buf: make([]byte, max(readBuffer, len(have)))}
	r.have = copy(r.buf, have)
	r.loop = loop.New(r.handOver)
	return r
}

// handOver starts the goroutine that goes on.
func (r *connReader) handOver() {
	next := &connReader{conn: r.conn, buf: r.buf, at: r.at, have: r.have, items: r.items, due: r.due}
	if r.conn.serve != nil { // the message in hand lies in buf, not in an inbox
		next = newConnReader(r.conn, r.buf[r.at:r.have])
		next.items = slices.Clone(r.items)
	}
	next.loop, next.broken = loop.New(next.handOver), r.broken
	r.buf, r.items, r.due = nil, nil, nil // this goroutine may wait for long
	r.conn.owned.Go(next.run)
}

// run takes frames until the connection ends, or another goroutine takes them.
func (r *connReader) run() {
	defer r.loop.Flush() // what a batch sent before the connection ended
	if r.broken == nil {
		r.broken = r.read()
	}
	// A broken frame ends the batch before it.
	if errors.Is(r.broken, errLeft) || errors.Is(r.hand(), errLeft) {
		return
	}
	r.conn.Fail(r.broken)
}

func (r *connReader) read() error {
	c := r.conn
	if err := r.takeItems(); err != nil { // of the goroutine before
		return err
	}
	for {
		if err := r.takeAll(); err != nil {
			return err
		}
		if err := r.hand(); err != nil {
			return err
		}
		r.loop.Flush()
		r.at, r.have = 0, copy(r.buf, r.buf[r.at:r.have])
		n, err := r.fetch()
		if n > 0 {
			c.heard.Store(true)
			r.have += n
			continue
		}
		switch {
		case errors.Is(err, io.EOF) && r.have > 0:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
}

// fetch reads what comes next into the rest of buf.
func (r *connReader) fetch() (n int, err error) {
	if r.conn.sock == nil {
		return r.conn.net.Read(r.buf[r.have:])
	}
	return r.conn.sock.Read(r.buf[r.have:])
}

// takeAll takes the whole frames that were read.
func (r *connReader) takeAll() error {
	for {
		f, n, err := frame.Decode(r.buf[r.at:r.have])
		if err != nil || n == 0 {
			return err
		}
		r.at += n
		if err := r.take(f); err != nil {
			return err
		}
	}
}

func (r *connReader) take(f frame.Frame) error {
	c := r.conn
	switch f.Kind {
	case frame.Items:
		r.items = f.Payload
		return r.takeItems()
	case frame.Part:
		return r.takePart(f.Payload)
	case frame.Open:
		return c.takeOpen(f.Payload)
	case frame.Close, frame.Reset:
		return c.takeLast(f)
	case frame.End:
		return c.takeEnd(f.Payload)
	case frame.Credit:
		return c.takeCredit(f.Payload)
	case frame.Ping, frame.Pong:
		number, err := frame.ParsePing(f)
		if err == nil && f.Kind == frame.Ping {
			c.pong(number)
		}
		return err
	case frame.Goaway:
		c.leave()
		return nil
	default:
		return fmt.Errorf("%w: %v in mid-connection", ErrProtocol, f.Kind)
	}
}

// takeItems takes the messages of the ITEMS frame in hand.
func (r *connReader) takeItems() error {
	for len(r.items) > 0 {
		id, message, rest, err := frame.NextItem(r.items)
		if err != nil {
			return err
		}
		r.items = rest
		s, err := r.conn.stream(id)
		if err != nil {
			return err
		}
		if s == nil {
			continue
		}
		if r.conn.serve != nil { // a Stop is read before the RESET behind it
			if err := r.put(s.in.Put(r.loop, message)); err != nil {
				return err
			}
			continue
		}
		due, err := s.in.Add(message)
		if err != nil {
			return err
		}
		if due {
			r.due = append(r.due, s.in)
		}
	}
	return nil
}

// hand hands the messages of a batch to the readers of their streams, those of one stream together.
func (r *connReader) hand() error {
	for len(r.due) > 0 {
		last := len(r.due) - 1
		in := r.due[last]
		r.due = r.due[:last]
		if !in.Hand(r.loop) {
			return errLeft
		}
	}
	return nil
}

func (r *connReader) takePart(payload []byte) error {
	id, left, part, err := frame.ParsePart(payload)
	if err != nil {
		return err
	}
	s, err := r.conn.stream(id)
	if s == nil {
		return err
	}
	return r.put(s.in.PutPart(r.loop, left, part))
}

// put returns the error of a message that was put, or errLeft.
func (r *connReader) put(still bool, err error) error {
	if err == nil && !still {
		return errLeft
	}
	return err
}
