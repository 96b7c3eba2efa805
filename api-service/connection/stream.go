package connection

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/whence-dev/whence/internal/prefetch"
)

// maxQueued bounds the bytes of an answer that wait for the server of HTTP/2, whose writes wait for the
// client. It stands for the buffer of the kernel over HTTP/1.
const maxQueued = 16 << 10

// A streamRequest is the Exchange of a request of HTTP/2. The goroutine of net/http's handler writes the
// answer, because its writes wait.
type streamRequest struct {
	noConn
	msg message

	conn    *Conn
	w       http.ResponseWriter
	control *http.ResponseController
	in      *http.Request

	mu      sync.Mutex // guards the following fields
	changed sync.Cond  // with mu
	status  int        // of the answer; 0 until its header is complete
	queued  []byte     // was sent, not written
	full    bool       // Send has not taken everything
	room    func()     // of Take
	taken   bool       // a handler has taken the answer
	over    bool       // the answer has ended
	ended   bool       // the handler of net/http returns, and may not be used any more
	cut     bool       // it has no end
	dropped bool       // the queued bytes are not written
}

// write writes the answer until it has ended. It returns false for an answer without an end.
func (x *streamRequest) write() (whole bool) {
	for began := false; ; {
		b, status, room, more := x.next()
		if !more {
			return !x.isCut()
		}
		if status != 0 && !began {
			began = true
			x.w.WriteHeader(status)
		}
		if room != nil {
			room()
		}
		_, err := x.w.Write(b)
		if err == nil {
			err = x.control.Flush()
		}
		if err != nil {
			x.lose()
		}
	}
}

// next waits for bytes to write. more is false when the answer has ended.
func (x *streamRequest) next() (b []byte, status int, room func(), more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.queued) == 0 && !x.over && !x.dropped {
		x.changed.Wait()
	}
	if x.dropped || len(x.queued) == 0 && (x.cut || x.status == 0) {
		return nil, 0, nil, false
	}
	b, x.queued = x.queued, nil
	if x.full {
		x.full, room = false, x.room
	}
	if len(b) == 0 { // the header of an answer without a body is written once
		status, x.status = x.status, 0
		return nil, status, room, status != 0
	}
	return b, x.status, room, true
}

func (x *streamRequest) isCut() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cut || x.dropped
}

// lose ends the exchange because the client has left, or does not take the answer.
func (x *streamRequest) lose() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropped, x.queued = true, nil
	x.changed.Broadcast()
	if room := x.room; x.full && room != nil {
		x.full = false
		go room() // finds out
	}
}

func (x *streamRequest) message() *message { return &x.msg }

func (x *streamRequest) parse(h *protocol.RequestHeader) (refusal int) {
	text := raw(x.in)
	x.msg.head.follow(text)
	refusal = x.msg.parse(h, text, x)
	if x.in.ContentLength != 0 {
		x.msg.body = newBody(x, x.in.ContentLength, false) // net/http sends 100 Continue
	}
	if x.conn.server.Arrival > 0 {
		_ = x.control.SetReadDeadline(time.Now().Add(x.conn.server.Arrival)) // never fails over HTTP/2
	}
	return refusal
}

// readBody implements reader.
func (x *streamRequest) readBody(p []byte) (int, error) {
	n, err := x.in.Body.Read(p)
	return n, bodyError(err)
}

// answer writes the response of a handler.
func (x *streamRequest) answer(response *protocol.Response) {
	out, err := x.Whole(response)
	x.mu.Lock()
	if err == nil && !x.over {
		x.queued = out
	}
	x.mu.Unlock()
	x.Free(false)
}

func (x *streamRequest) isTaken() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.taken
}

// Take implements Exchange.
func (x *streamRequest) Take(room func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.taken, x.room = true, room
}

// Identity implements Exchange.
func (x *streamRequest) Identity() bool { return true }

// Head implements Exchange.
func (x *streamRequest) Head(b []byte, h *protocol.ResponseHeader) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over || x.dropped { // the server of HTTP/2 has its header now
		return b
	}
	out := x.w.Header()
	h.VisitAll(func(name, value []byte) {
		switch name := string(name); name {
		case "Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "Content-Length":
		default:
			out.Add(name, string(value))
		}
	})
	x.status = h.StatusCode()
	return b
}

// Whole implements Exchange.
func (x *streamRequest) Whole(response *protocol.Response) ([]byte, error) {
	body := response.BodyBytes()
	b := x.Head(nil, &response.Header)
	if response.MustSkipBody() {
		return b, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.over && !x.dropped {
		x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	return append(b, body...), nil
}

// Send implements Exchange.
func (x *streamRequest) Send(b []byte) (n int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over || x.dropped {
		return 0, errClosed
	}
	n = min(len(b), max(0, maxQueued-len(x.queued)))
	x.queued = append(x.queued, b[:n]...)
	x.full = n < len(b)
	x.changed.Broadcast()
	return n, nil
}

// Upgrade implements Exchange. A request of HTTP/2 asks for no other protocol.
func (x *streamRequest) Upgrade() (next func() ([]byte, error)) {
	return func() ([]byte, error) { return nil, errClosed }
}

// Acknowledged implements Exchange.
func (x *streamRequest) Acknowledged() (all bool, ago time.Duration, err error) {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	if x.conn.phase == over {
		return false, 0, errClosed
	}
	return x.conn.sock.acknowledged()
}

// Reset implements Exchange.
func (x *streamRequest) Reset() {
	x.lose()
	x.end(true)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ended {
		_ = x.control.SetWriteDeadline(time.Unix(1, 0)) // ends a write that waits
	}
}

// Cut implements Exchange.
func (x *streamRequest) Cut() { x.end(true) }

// Free implements Exchange.
func (x *streamRequest) Free(bool) { x.end(false) }

func (x *streamRequest) end(cut bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	x.over, x.cut, x.room = true, cut, nil
	x.changed.Broadcast()
	if write := x.conn.server.Write; write > 0 && !x.ended {
		_ = x.control.SetWriteDeadline(time.Now().Add(write)) // never fails over HTTP/2
	}
}

// AwaitLeft implements Exchange.
func (x *streamRequest) AwaitLeft(d time.Duration) {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-x.in.Context().Done():
	case <-late.C:
	}
}

// Late implements Exchange.
func (x *streamRequest) Late() bool { return x.conn.late }

// Touched implements Exchange.
func (x *streamRequest) Touched(to *prefetch.List) { to.Add(prefetch.Of(x)) }
