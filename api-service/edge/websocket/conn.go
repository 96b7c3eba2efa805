// Package websocket carries streams over WebSockets (RFC 6455) at the edge: the handshake, the
// frames, the check that the client is alive, and the close code of an ending.
//
// hertz-contrib/websocket makes the handshake and reads frames, but writes nothing: its writes
// would wait for the client, and after a fault of the client it would close the connection before
// the ending of the stream could be sent. So all frames are written through the clientconn.Conn of
// the request, which never waits and applies the bounds of all clients.
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

	"github.com/cloudwego/hertz/pkg/network"
	hertzws "github.com/hertz-contrib/websocket"

	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Conn is a WebSocket on the connection of a client. One goroutine calls Receive; the other methods
// are safe for concurrent use.
type Conn struct {
	client     *clientconn.Conn
	in         *inbound
	ws         *hertzws.Conn
	maxMessage int64
	// Reserve takes memory for a message of up to that many bytes, or refuses it; shrink returns what is not
	// needed. nil for no bound.
	Reserve func(size int64) (shrink func(to int64), err error)

	mu     sync.Mutex // held while a control frame is written, which does not wait
	closed bool       // a close frame is being sent, and nothing may follow it
}

var errReadOnly = errors.New("websocket: the library does not write")

// inbound is the connection without its writes.
type inbound struct {
	network.Conn
	code  int           // code of the close frame that the library tried to send; 0 if none
	text  string        // of that frame
	heard atomic.Uint64 // number of bytes received from the client
	scanner
}

// Read implements net.Conn. It counts bytes, because a client that sends a long message slowly is
// alive, and frames without data.
func (i *inbound) Read(b []byte) (int, error) {
	n, err := i.Conn.Read(b)
	i.heard.Add(uint64(n))
	if flood := i.scan(b[:n], time.Now()); flood != nil {
		return 0, flood
	}
	return n, err
}

// Write implements net.Conn. It records the close frame that the library sends after a fault of the
// client.
func (i *inbound) Write(b []byte) (int, error) {
	if len(b) >= 4 && Opcode(b[0]) == final|closing {
		i.code, i.text = int(b[2])<<8|int(b[3]), string(b[4:])
	}
	return 0, errReadOnly
}

// SetDeadline implements net.Conn. The library may not set deadlines.
func (i *inbound) SetDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (i *inbound) SetWriteDeadline(time.Time) error { return nil }

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
	kind, r, err := c.ws.NextReader()
	if err != nil {
		return Message{}, c.fault(err)
	}
	m := Message{Kind: Opcode(kind)}
	if m.Data, err = io.ReadAll(io.LimitReader(r, freeMessage)); err == nil && len(m.Data) == freeMessage {
		err = c.readLong(&m, r)
	}
	switch {
	case err != nil:
		m.Free()
		return Message{}, c.fault(err)
	case m.Refused == nil && m.Kind == Text && !utf8.Valid(m.Data):
		m.Free()
		return Message{}, &Fault{Cause: streamerr.New(streamerr.Invalid, "a text message is not valid UTF-8"), Code: badText}
	}
	return m, nil
}

// readLong reads the rest of a long message, or skips it if there is no memory for it.
func (c *Conn) readLong(m *Message, r io.Reader) error {
	if c.Reserve != nil {
		if m.shrink, m.Refused = c.Reserve(c.maxMessage); m.Refused != nil {
			m.Data = nil
			_, err := io.Copy(io.Discard, r)
			return err
		}
	}
	rest, err := io.ReadAll(r)
	m.Data = append(m.Data, rest...)
	m.keep(len(m.Data))
	return err
}

// Free returns the memory of a message, once Data is no longer needed. It may be called more than once.
func (m *Message) Free() { m.keep(0) }

// keep returns the memory that is not needed for n bytes.
func (m *Message) keep(n int) {
	if m.shrink != nil {
		m.shrink(int64(n))
	}
}

// fault returns the Fault of an error of the library.
func (c *Conn) fault(err error) *Fault {
	gone := clientconn.Gone()
	closed, isClose := errors.AsType[*hertzws.CloseError](err)
	switch {
	case errors.Is(err, errIdleFrames):
		return &Fault{Cause: streamerr.New(streamerr.Invalid, "the client sends too many frames without data"), Code: brokenRules}
	case c.in.code == tooBig || errors.Is(err, hertzws.ErrReadLimit):
		return &Fault{Cause: streamerr.New(streamerr.Invalid, "a message has more than %d bytes", c.maxMessage), Code: tooBig}
	case c.in.code != 0:
		return &Fault{Cause: streamerr.New(streamerr.Invalid, "the client does not follow the WebSocket protocol: %s", c.in.text), Code: brokenFrames}
	case c.client.Failure() != nil && (!isClose || closed.Code == noFrame): // a failed client has closed the connection itself
		return &Fault{Cause: c.client.Failure()}
	case isClose && closed.Code == noFrame:
		gone.Message = "the client closed its connection without a close frame"
		return &Fault{Cause: gone}
	case isClose && closed.Code == noCode:
		gone.Message = "the client closed the WebSocket without a code"
		return &Fault{Cause: gone, Code: normal, Closed: true}
	case isClose:
		gone.Message = "the client closed the WebSocket with the code " + strconv.Itoa(closed.Code)
		return &Fault{Cause: gone, Code: closed.Code, Closed: true}
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
