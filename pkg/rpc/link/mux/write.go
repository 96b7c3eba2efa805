package mux

import (
	"encoding/binary"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/stream"
)

const (
	// flushBytes is the number of bytes from which on a write no longer waits for more messages.
	flushBytes = 64 << 10
	// maxWaiting is the number of unsent bytes from which on senders wait for a peer that reads
	// slowly. It bounds frames and large messages separately, so that small messages do not wait
	// for large messages.
	maxWaiting = 1 << 20
	// maxControl bounds all unsent bytes, including frames that never wait: endings, credit,
	// answers to PINGs. Beyond it the connection ends.
	maxControl = 16 << 20
	// ratePeriod is the time over which the write rate of a connection is measured.
	ratePeriod = 10 * time.Millisecond
	// worthwhile is the number of writes per FlushEvery from which on one write replaces them.
	worthwhile = 4
)

// An output has the unwritten data of a connection. The connection's mu guards it.
type output struct {
	bytes   []byte    // frames
	spare   []byte    // the buffer of the last write
	items   int       // offset in bytes of an ITEMS frame that accepts more messages; -1 for none
	large   []*large  // messages that are sent in parts, round robin
	rest    []byte    // of a write that would have blocked; owned by the writer
	whole   []byte    // the buffer of rest
	writing bool      // a goroutine is writing; it also writes the bytes that others add
	later   bool      // a Loop flushes at the end of its batch
	blocked []*Stream // streams that wait until fewer bytes are unsent

	last  time.Time   // of the last write
	timer *time.Timer // writes the bytes that wait for more messages; nil before the first use
	armed bool        // the timer is running
	haste bool        // the next write must not wait for more messages
	since time.Time   // when count began
	count int         // writes since then that would have happened without waiting
	rate  float64     // such writes per second in the period before
}

// A large message is sent in parts, followed by the frames that its stream sends after it.
type large struct {
	stream *Stream
	rest   []byte // of the message
	behind []byte // frames that follow the message
}

// closeItems ends the open ITEMS frame, so that another frame can follow.
func (o *output) closeItems() { o.items = -1 }

// forget drops the rest of a large message if its stream was dropped.
func (o *output) forget(s *Stream) {
	if s.large != nil && s.dropped {
		o.large = slices.DeleteFunc(o.large, func(l *large) bool { return l == s.large })
		s.large = nil
	}
}

// item appends a message of size bytes to the open ITEMS frame, or to a new one.
func (o *output) item(id uint32, m proto.Message, size int) error {
	if o.items >= 0 && len(o.bytes)-o.items-frame.HeaderSize+size+frame.MaxItemHead > frame.MaxPayload {
		o.closeItems()
	}
	b, items := o.bytes, o.items
	if items < 0 {
		b, items = frame.Begin(b, frame.Items)
	}
	b = frame.AppendItemHead(b, id, size)
	head := len(b)
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m) // may panic if m changes
	if err != nil {
		return err
	}
	if len(b)-head != size { // m was changed meanwhile
		return errChanged
	}
	o.bytes, o.items = b, items
	frame.Finish(o.bytes, o.items)
	return nil
}

// take returns the bytes of the next write: the waiting frames, and one part of one large message.
func (o *output) take() []byte {
	o.closeItems()
	o.haste = false
	if len(o.large) > 0 {
		l := o.large[0]
		o.large = o.large[1:]
		o.bytes, l.rest = frame.AppendPart(o.bytes, l.stream.id, l.rest, partSize)
		if len(l.rest) > 0 {
			o.large = append(o.large, l)
		} else {
			o.bytes = append(o.bytes, l.behind...)
			l.stream.large = nil
		}
	}
	b := o.bytes
	o.bytes, o.spare = o.spare[:0], nil
	return b
}

// written reuses the buffer of a finished write.
func (o *output) written(b []byte) {
	if cap(b) <= 2*flushBytes {
		o.spare = b[:0]
	}
}

func (o *output) empty() bool { return len(o.bytes) == 0 && len(o.large) == 0 }

// full reports whether at least limit bytes are unsent. If behind is true, for a message in parts
// or after a large message, all large messages and the frames that follow them count, too.
func (o *output) full(behind bool, limit int) bool {
	if len(o.bytes) >= limit {
		return true
	}
	if !behind {
		return false
	}
	n := 0
	for _, l := range o.large {
		n += len(l.rest) + len(l.behind)
	}
	return n >= limit
}

// wait returns how long the next write should wait for more messages. It is 0 unless one write then
// replaces several. The messages of a batch are written together anyway.
func (o *output) wait(now time.Time, every time.Duration) time.Duration {
	if past := now.Sub(o.since); past >= ratePeriod {
		o.rate = float64(o.count) / past.Seconds()
		o.since, o.count = now, 0
	}
	if every <= 0 || len(o.bytes) >= flushBytes || o.rate*every.Seconds() < worthwhile {
		return 0
	}
	return every - now.Sub(o.last)
}

// flushBy flushes, or makes the Loop flush at the end of its batch. haste means that the write must not
// wait for messages of other batches. The caller holds mu.
func (c *Conn) flushBy(on *stream.Loop, haste bool) {
	o := &c.out
	o.haste = o.haste || haste
	if len(o.bytes) < flushBytes && len(o.large) == 0 && (o.later || on.Later(c)) {
		o.later = true
		return
	}
	c.flush()
}

// flush writes the waiting bytes, unless another goroutine is writing, or the write waits for more
// messages. It never blocks. The caller holds mu, which is released during the write.
func (c *Conn) flush() {
	o := &c.out
	if c.err != nil || o.empty() {
		return
	}
	o.count++
	if o.writing || o.armed && len(o.bytes) < flushBytes && !o.haste {
		return
	}
	now := time.Now()
	if wait := o.wait(now, c.opts.FlushEvery); wait > 0 && !o.haste {
		o.armed = true
		if o.timer == nil {
			o.timer = time.AfterFunc(wait, c.flushLate)
		} else {
			o.timer.Reset(wait)
		}
		return
	}
	o.last = now
	c.write()
}

// flushLate is flush after the wait for more messages.
func (c *Conn) flushLate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.armed = false
	if c.out.writing || c.err != nil || c.out.empty() {
		return
	}
	c.out.last = time.Now()
	c.write()
}

// write writes until no bytes wait. It leaves the rest of a write that would block to the writer.
// The caller holds mu, which is released during a write.
func (c *Conn) write() {
	o := &c.out
	o.writing = true
	for !o.empty() && c.err == nil {
		b := o.take()
		c.mu.Unlock()
		n, err := c.writeNow(b)
		c.mu.Lock()
		if err == nil && n < len(b) {
			o.rest, o.whole = b[n:], b
			c.writer <- struct{}{} // has capacity: no other goroutine writes
			return
		}
		o.written(b)
		if err != nil {
			c.failLater(err)
			break
		}
		c.unblock()
	}
	c.written()
}

// written records that no goroutine is writing, and ends a connection that is idle. The caller
// holds mu.
func (c *Conn) written() {
	c.out.writing = false
	if idle := c.idleNow(); idle != nil {
		c.owned.Go(idle) // safe: the goroutine that reads is alive
	}
}

// unblock wakes the senders that wait for a slow peer, if the peer has read enough. The caller
// holds mu.
func (c *Conn) unblock() {
	if len(c.out.blocked) == 0 || c.out.full(false, maxWaiting/2) {
		return
	}
	fullBehind := c.out.full(true, maxWaiting/2)
	c.out.blocked = slices.DeleteFunc(c.out.blocked, func(s *Stream) bool {
		s.blocked = s.behind && fullBehind
		if !s.blocked {
			s.room.open()
		}
		return !s.blocked
	})
}

// writeNow writes the bytes that the kernel accepts at once.
func (c *Conn) writeNow(b []byte) (n int, err error) {
	if c.sock == nil {
		return 0, nil
	}
	return c.sock.Write(b)
}

// failLater ends the connection. The caller holds mu.
func (c *Conn) failLater(err error) {
	if c.err == nil { // then the goroutine that reads is alive, and owned accepts another goroutine
		c.owned.Go(func() { c.Fail(err) })
	}
}

// writeRest is the writer: it finishes writes that would have blocked.
func (c *Conn) writeRest() {
	for {
		select {
		case <-c.done:
			return
		case <-c.writer:
		}
		c.mu.Lock()
		for b := c.out.rest; len(b) > 0; b = c.out.rest {
			c.mu.Unlock()
			_, err := c.net.Write(b)
			if err != nil {
				c.Fail(err)
				return
			}
			c.mu.Lock()
			c.out.written(c.out.whole)
			c.out.rest, c.out.whole = nil, nil
			c.unblock() // before the check: a woken sender leaves its message to this goroutine
			if c.err == nil && !c.out.empty() {
				c.out.rest = c.out.take()
				c.out.whole = c.out.rest
			}
		}
		c.written()
		c.mu.Unlock()
	}
}

// control appends a frame that never waits for credit, and flushes.
func (c *Conn) control(add func([]byte) []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(add)
}

// add appends frames, and flushes. The caller holds mu.
func (c *Conn) add(frames func([]byte) []byte) {
	if c.err != nil {
		return
	}
	c.out.closeItems()
	c.out.bytes = frames(c.out.bytes)
	if len(c.out.bytes) > maxControl { // frames accumulate, and the peer does not read
		c.failLater(ErrNotRead)
	}
	c.flush()
}

// follow appends frames of a stream, after its large message if there is one, and flushes. The
// caller holds mu.
func (c *Conn) follow(s *Stream, add func([]byte) []byte) {
	if s.large != nil && c.err == nil {
		s.large.behind = add(s.large.behind)
		return
	}
	c.add(add)
}

// appendItem appends an ITEMS frame of one encoded message.
func appendItem(b []byte, id uint32, message []byte) []byte {
	b, at := frame.Begin(b, frame.Items)
	b = binary.AppendUvarint(b, uint64(id))
	b = binary.AppendUvarint(b, uint64(len(message)))
	b = append(b, message...)
	frame.Finish(b, at)
	return b
}
