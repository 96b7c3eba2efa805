package mux

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/stream"
)

// readBuffer is the length of a connection's read buffer: two of the longest frames.
const readBuffer = 2 * (frame.HeaderSize + frame.MaxPayload)

// A connReader is the goroutine that reads a connection, and carries the messages of a batch to the
// readers of their streams. When a reader has to wait, another goroutine continues after the
// current message.
type connReader struct {
	conn *Conn
	loop *stream.Loop

	// Constant while a message is with its reader.
	buf    []byte
	at     int       // offset in bytes of the first unprocessed byte
	have   int       // number of bytes in buf
	items  []byte    // the unprocessed messages of the current ITEMS frame
	broken error     // why the connection ends after the batch; nil while frames are read
	due    []*Stream // streams whose messages are passed on at the end of the batch

	arrived []arrival // scratch of takeItems
}

// An arrival is a message and its stream.
type arrival struct {
	stream  *Stream
	message []byte
}

// errLeft ends a goroutine after another goroutine has replaced it.
var errLeft = errors.New("link: another goroutine reads the connection")

// newConnReader returns the connReader of a connection. have are the bytes that have been read
// already.
func newConnReader(c *Conn, have []byte) *connReader {
	r := &connReader{conn: c, buf: make([]byte, max(readBuffer, len(have)))}
	r.have = copy(r.buf, have)
	r.loop = stream.NewLoop(r.handOver)
	return r
}

// handOver starts the goroutine that continues.
func (r *connReader) handOver() {
	next := &connReader{conn: r.conn, buf: r.buf, at: r.at, have: r.have, items: r.items, due: r.due}
	if r.conn.serve != nil { // the current message is in buf, not in an inbox
		next = newConnReader(r.conn, r.buf[r.at:r.have])
		next.items = slices.Clone(r.items)
	}
	next.loop, next.broken = stream.NewLoop(next.handOver), r.broken
	r.buf, r.items, r.due = nil, nil, nil // this goroutine may block for long
	r.conn.owned.Go(next.run)
}

// run processes frames until the connection ends, or another goroutine continues.
func (r *connReader) run() {
	defer r.loop.Flush() // writes the data of a batch that was sent before the connection ended
	if r.broken == nil {
		r.broken = r.read()
	}
	// A malformed frame ends the batch before it.
	if errors.Is(r.broken, errLeft) || errors.Is(r.hand(), errLeft) {
		return
	}
	r.conn.Fail(r.broken)
}

func (r *connReader) read() error {
	c := r.conn
	if err := r.takeItems(); err != nil { // of the previous goroutine
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

// fetch reads the next bytes into the rest of buf.
func (r *connReader) fetch() (n int, err error) {
	if r.conn.sock == nil {
		return r.conn.net.Read(r.buf[r.have:])
	}
	return r.conn.sock.Read(r.buf[r.have:])
}

// takeAll processes the complete frames that have been read.
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

// takeItems processes the messages of the current ITEMS frame.
func (r *connReader) takeItems() error {
	if r.conn.serve == nil {
		return r.addItems()
	}
	for len(r.items) > 0 {
		s, message, err := r.nextItem()
		if err != nil {
			return err
		}
		if s == nil {
			continue
		}
		if err := r.put(s.in.Put(r.loop, message)); err != nil { // a Stop is read before the RESET after it
			return err
		}
	}
	return nil
}

// addItems adds the messages of the current ITEMS frame to the inboxes of their streams. It looks
// all streams up before it uses the first, so that they are loaded into the cache at the same time.
func (r *connReader) addItems() error {
	r.arrived = r.arrived[:0]
	var broken error
	for len(r.items) > 0 && broken == nil {
		var a arrival
		if a.stream, a.message, broken = r.nextItem(); a.stream != nil {
			prefetch.Start(a.stream)
			r.arrived = append(r.arrived, a)
		}
	}
	for _, a := range r.arrived {
		isDue, err := a.stream.in.Add(a.message)
		if err != nil {
			return err
		}
		if isDue {
			r.due = append(r.due, a.stream)
		}
	}
	clear(r.arrived)
	return broken
}

// nextItem returns the next message of the current ITEMS frame and its stream. The stream is nil if
// it has ended on this end.
func (r *connReader) nextItem() (s *Stream, message []byte, err error) {
	id, message, rest, err := frame.NextItem(r.items)
	if err != nil {
		return nil, nil, err
	}
	r.items = rest
	s, err = r.conn.stream(id)
	return s, message, err
}

// hand passes the messages of a batch to the readers of their streams, one stream after another.
func (r *connReader) hand() error {
	if n := len(r.due); n > 0 {
		r.due[n-1].load()
	}
	for len(r.due) > 0 {
		last := len(r.due) - 1
		s := r.due[last]
		r.due = r.due[:last]
		if last > 0 {
			r.due[last-1].load() // while s is handled
		}
		if !s.in.Hand(r.loop) {
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

// put returns the error of a Put, or errLeft.
func (r *connReader) put(still bool, err error) error {
	if err == nil && !still {
		return errLeft
	}
	return err
}
