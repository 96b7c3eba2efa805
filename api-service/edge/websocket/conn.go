// Package websocket carries streams over WebSockets (RFC 6455) at the edge: the handshake, the
// frames, the check that the client is alive, and the close code of an ending.
//
// All frames are written through the clientconn.Conn of the request, which never waits and applies the
// bounds of all clients. Control frames of the client are answered while its messages are read.
package websocket

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Conn is a WebSocket on the connection of a client. One goroutine calls Receive; the other methods
// are safe for concurrent use.
type Conn struct {
	client *clientconn.Conn
	in     *inbound
	// Reserve takes memory for a message of up to that many bytes, or refuses it; shrink returns what is not
	// needed. nil for no bound.
	Reserve func(size int64) (shrink func(to int64), err error)

	mu     sync.Mutex // held while a control frame is written, which does not wait
	closed bool       // a close frame is being sent, and nothing may follow it
}

// inbound is what the client sends.
type inbound struct {
	next  func() ([]byte, error) // waits for more bytes
	rest  []byte                 // arrived, not parsed
	heard atomic.Uint64          // number of bytes received from the client
	parser
}

// read parses the next part of what the client sends. Any byte is counted, because a client that sends
// a long message slowly is alive.
func (i *inbound) read() (part []byte, what event, err error) {
	for {
		if len(i.rest) == 0 {
			if i.rest, err = i.next(); err != nil {
				return nil, more, err
			}
			i.heard.Add(uint64(len(i.rest)))
		}
		var taken int
		taken, part, what, err = i.take(i.rest, time.Now())
		if i.rest = i.rest[taken:]; len(i.rest) == 0 {
			i.rest = nil
		}
		if what != more || err != nil {
			return part, what, err
		}
	}
}

// A Message is a message of a client.
type Message struct {
	Kind Opcode // Text or Binary
	Data []byte
	// Refused is why a long message was not read; nil for others.
	Refused error

	shrink func(to int64) // of Conn.Reserve; nil for a message that is not long
}

// freeMessage is the size from which a message needs Conn.Reserve, in bytes.
const freeMessage = 2 << 20

// A Fault is the reason why a client's messages have ended.
type Fault struct {
	Cause *streamerr.Error
	Code  int // the close code that answers the fault; 0 means the code of the ending
	// Closed reports that the client has sent a close frame. After that it reads nothing.
	Closed bool
}

// Receive returns the next message. After a Fault there are no more.
func (c *Conn) Receive() (Message, *Fault) {
	var m Message
	for {
		part, what, err := c.in.read()
		switch {
		case err != nil:
		case what == control:
			err = c.answer(Opcode(c.in.head[0])&0xf, part)
		default:
			c.extend(&m, part)
		}
		switch {
		case err != nil:
			m.Free()
			return Message{}, c.fault(err)
		case what != whole:
			continue
		case m.Kind == Text && m.Refused == nil && !utf8.Valid(m.Data):
			m.Free()
			return Message{}, &Fault{Cause: streamerr.New(streamerr.Invalid, "a text message is not valid UTF-8"), Code: badText}
		}
		m.keep(len(m.Data))
		return m, nil
	}
}

// extend adds a part to a message. A part of a message for which there is no memory is dropped.
func (c *Conn) extend(m *Message, part []byte) {
	m.Kind = c.in.kind
	if m.Refused != nil {
		return
	}
	if before := len(m.Data); before < freeMessage && before+len(part) >= freeMessage && c.Reserve != nil {
		if m.shrink, m.Refused = c.Reserve(c.in.limit); m.Refused != nil {
			m.Data = nil
			return
		}
	}
	m.Data = append(m.Data, part...)
}

// answer answers a control frame. A close frame is an error.
func (c *Conn) answer(kind Opcode, payload []byte) error {
	switch kind {
	case ping:
		return c.control(frameOf(pong, payload))
	case closing:
		return closed(payload)
	default: // a pong
		return nil
	}
}

// Free returns the memory of a message, once Data is no longer needed. It may be called more than once.
func (m *Message) Free() { m.keep(0) }

// keep returns the memory that is not needed for n bytes.
func (m *Message) keep(n int) {
	if m.shrink != nil {
		m.shrink(int64(n))
	}
}

// fault returns the Fault of an error of read or answer.
func (c *Conn) fault(err error) *Fault {
	gone := clientconn.Gone()
	var wrong *violation
	var left *closeError
	switch {
	case errors.As(err, &wrong):
		return &Fault{Cause: streamerr.New(streamerr.Invalid, "%s", wrong.text), Code: wrong.code}
	case errors.As(err, &left) && left.code == noCode:
		gone.Message = "the client closed the WebSocket without a code"
		return &Fault{Cause: gone, Code: normal, Closed: true}
	case left != nil:
		gone.Message = "the client closed the WebSocket with the code " + strconv.Itoa(left.code)
		return &Fault{Cause: gone, Code: left.code, Closed: true}
	case c.client.Failure() != nil: // a failed client has closed the connection itself
		return &Fault{Cause: c.client.Failure()}
	case errors.Is(err, io.EOF):
		gone.Message = "the client closed its connection without a close frame"
		return &Fault{Cause: gone}
	default:
		gone.Cause = err
		return &Fault{Cause: gone}
	}
}

// Say sends a text message, unless a close frame is being sent. It does not wait for the client.
func (c *Conn) Say(text []byte) error { return c.control(frameOf(Text, text)) }

// control writes a frame of its own, such as a ping, unless a close frame is being sent.
func (c *Conn) control(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	_, err := c.client.Write(frame, 0)
	return err
}

// Close sends the last message of a WebSocket, if there is one, and a close frame with a code and a
// text of at most 123 bytes. It waits until the client has taken them, within the bounds of the
// clientconn.Conn. Nothing may be sent after Close.
func (c *Conn) Close(last []byte, code int, text string) error {
	var out []byte
	if len(last) > 0 {
		out = frameOf(Text, last)
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	payload := append([]byte{byte(code >> 8), byte(code)}, text...)
	return c.client.Send(append(out, frameOf(closing, payload[:min(len(payload), maxControl)])...), 0)
}

// Watch sends a ping every interval, and calls lost if the client does not answer a ping within
// patience: the client's machine may be alive while its program hangs. Any byte from the client
// counts as an answer. An interval of 0 means no pings; a patience of 0 means no bound.
func (c *Conn) Watch(interval, patience time.Duration, lost func(cause *streamerr.Error)) (stop func()) {
	if interval <= 0 {
		return func() {}
	}
	w := &watch{conn: c, interval: interval, patience: patience, lost: lost}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(interval, w.tick)
	return w.stop
}

// A watch checks that the client of a Conn answers.
type watch struct {
	conn               *Conn
	interval, patience time.Duration
	lost               func(cause *streamerr.Error)

	mu      sync.Mutex // guards the following fields
	timer   *time.Timer
	waiting bool   // for the answer to a ping
	heard   uint64 // bytes received before that ping
	ended   bool
}

// tick executes the duty that is due: it sends a ping, or gives the client up.
func (w *watch) tick() {
	switch w.due() {
	case sendPing:
		_ = w.conn.control(frameOf(ping, nil)) // client reports why a write failed
	case giveUp:
		gone := clientconn.Gone()
		gone.Message = fmt.Sprintf("the client has not answered a ping for %v", w.patience)
		w.lost(gone)
	case rest:
	}
}

// A duty is an action that a watch has to take.
type duty int

const (
	rest duty = iota
	sendPing
	giveUp
)

// due returns the duty that is due, and sets the timer for the next one.
func (w *watch) due() duty {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := w.conn.in.heard.Load()
	switch {
	case w.ended:
		return rest
	case w.waiting && heard == w.heard:
		w.ended = true
		return giveUp
	case w.waiting && w.interval > w.patience:
		w.waiting = false
		w.timer.Reset(w.interval - w.patience)
		return rest
	}
	w.waiting, w.heard = w.patience > 0, heard
	next := w.interval
	if w.waiting {
		next = w.patience
	}
	w.timer.Reset(next)
	return sendPing
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
}
