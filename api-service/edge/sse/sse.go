// Package sse encodes server-sent events in a form that all clients parse, or lines of JSON for APIs
// whose streams have no events.
package sse

import (
	"strconv"
	"sync"
	"time"
)

// maxKept bounds the buffers that are kept for the next events, in bytes. A larger buffer is dropped
// after use.
const maxKept = 64 << 10

// usual is the initial size of a buffer, which is enough for most events.
const usual = 256

// buffers has the buffers of Encoders that encode nothing at the moment. Streams that are carried
// one after another use the same few, which stay in the processor's cache.
var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, usual)
	return &b
}}

// An Encoder encodes events into a buffer. Each event is one chunk of the body for HTTP/1.1, or
// plain bytes for HTTP/1.0, whose body ends with the connection. Only one goroutine may use it. The
// zero value is ready to use.
type Encoder struct {
	// Identity omits the chunk framing.
	Identity bool
	// Lines encodes the data of each event as a line of its own, without the form of events. Such
	// streams have no comments: some clients parse every line.
	Lines bool

	shared *[]byte // of buffers; nil if there is no event since Release
	buf    []byte
	event  int // start of the current event in buf, after the size of its chunk
	size   int // bytes of the events in buf, without framing

	answered int // end of the event in buf that completes the answer; 0 if none does
}

// sizeRoom is the room for the line with the size of a chunk. Two digits are enough for most
// events.
const sizeRoom = len("xx\r\n")

// Take returns the bytes encoded since the last Take, and their size without framing. The bytes are
// valid until the next event begins, or until Release.
func (e *Encoder) Take() (encoded []byte, size int) {
	encoded, size = e.buf, e.size
	e.size, e.answered = 0, 0
	e.buf = e.buf[:0]
	return encoded, size
}

// Release lets other Encoders use the buffer. There must be no event since the last Take.
func (e *Encoder) Release() {
	if e.shared == nil {
		return
	}
	if cap(e.buf) <= maxKept {
		*e.shared = e.buf[:0]
	}
	buffers.Put(e.shared)
	e.shared, e.buf = nil, nil
}

// Answered marks that the last event completes the answer. Only the usage and the terminator
// follow.
func (e *Encoder) Answered() { e.answered = len(e.buf) }

// AnsweredAt returns the number of bytes of the next Take up to the mark of Answered, or 0 without
// a mark.
func (e *Encoder) AnsweredAt() int { return e.answered }

// Begin begins an event that is one data line, and returns the buffer to append the data to.
func (e *Encoder) Begin() []byte {
	if e.Lines {
		return e.begin()
	}
	return append(e.begin(), "data: "...)
}

// BeginEvent begins an event that has a name and one data line, and returns the buffer to append the
// data to.
func (e *Encoder) BeginEvent(name string) []byte {
	return append(append(append(e.begin(), "event: "...), name...), "\ndata: "...)
}

// End ends the event; line is the buffer of Begin or BeginEvent with the data.
func (e *Encoder) End(line []byte) {
	if e.Lines {
		e.end(append(line, '\n'))
		return
	}
	e.end(append(line, "\n\n"...))
}

// Event encodes one event, whose data is one line. The id comes last: some clients use it as the
// last event id as soon as they have read its line. With the id first, they would skip an event
// whose data they have not received.
func (e *Encoder) Event(id, name string, data []byte) {
	b := append(append(append(e.BeginEvent(name), data...), "\nid: "...), id...)
	e.end(append(b, "\n\n"...))
}

// Retry encodes the delay before a reader reconnects.
func (e *Encoder) Retry(after time.Duration) {
	b := strconv.AppendInt(append(e.begin(), "retry: "...), after.Milliseconds(), 10)
	e.end(append(b, "\n\n"...))
}

// KeepAlive encodes a comment that all clients skip: one line without a blank line after it,
// because some clients take a blank line for an event.
func (e *Encoder) KeepAlive() {
	if !e.Lines {
		e.end(append(e.begin(), ": keep-alive\n"...))
	}
}

// Finish encodes the end of the body.
func (e *Encoder) Finish() {
	if !e.Identity {
		e.buf = append(e.buf, "0\r\n\r\n"...)
	}
}

// begin reserves room for the size of the chunk. An event that is never ended, because the code that
// encodes it has panicked, leaves nothing behind.
func (e *Encoder) begin() []byte {
	if e.shared == nil {
		e.shared = buffers.Get().(*[]byte) //nolint:forcetypeassert // the pool has nothing else
		e.buf = append(*e.shared, e.buf...)
	}
	b := e.buf
	if !e.Identity {
		b = append(b, "xx\r\n"...)
	}
	e.event = len(b)
	return b
}

// end fills in the size of the chunk.
func (e *Encoder) end(b []byte) {
	size := len(b) - e.event
	e.size += size
	if !e.Identity {
		b = frame(b, e.event, size)
	}
	e.buf = b
}

// frame writes the size of a chunk before the chunk, and ends the chunk. There is room for two
// digits; with more or fewer digits, frame moves the event.
func frame(b []byte, event, size int) []byte {
	var digits [16]byte
	line := append(strconv.AppendInt(digits[:0], int64(size), 16), "\r\n"...)
	at := event - sizeRoom
	switch more := len(line) - sizeRoom; {
	case more > 0:
		b = append(b, line[:more]...) // makes room; the bytes are overwritten
		copy(b[event+more:], b[event:event+size])
	case more < 0:
		copy(b[event+more:], b[event:])
		b = b[:len(b)+more]
	}
	copy(b[at:], line)
	return append(b, "\r\n"...)
}
