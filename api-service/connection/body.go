package connection

import (
	"errors"
	"io"
	"os"

	"github.com/cloudwego/hertz/pkg/app"
)

// maxSkip bounds the rest of a body that is read and dropped to keep the connection, in bytes.
const maxSkip = 256 << 10

// A Body is the body of a request, which a handler reads when it needs it: a request is refused
// without its body, and a client that waits for 100 Continue gets it when the body is read.
//
// Read returns io.EOF after the whole body, and os.ErrDeadlineExceeded if the body has not arrived
// in time.
type Body struct {
	from    reader // nil for a body of no request
	length  int64  // announced length; -1 for a chunked body
	left    int64  // bytes that have not been read, of an announced length
	chunks  *chunks
	expects bool  // the client waits for 100 Continue before it sends the body
	err     error // of all further reads
}

// A reader reads a body from its connection.
type reader interface {
	readBody(p []byte) (n int, err error)
}

// BodyOf returns the body of a request.
func BodyOf(c *app.RequestContext) *Body {
	if r, ok := c.GetConn().(exchange); ok {
		return &r.message().body
	}
	return &Body{err: io.EOF}
}

// newBody returns the body of a request with an announced length, or -1 for a chunked body.
func newBody(from reader, length int64, expects bool) Body {
	b := Body{from: from, length: max(length, -1), left: length, expects: expects}
	switch {
	case length < 0:
		b.chunks = new(chunks)
	case length == 0:
		b.err = io.EOF
	}
	return b
}

// Length returns the announced length of the body in bytes, or -1 for a chunked body.
func (b *Body) Length() int64 { return b.length }

// TrailerTooLarge reports whether an error of Read means that the trailer of the body is too large.
func TrailerTooLarge(err error) bool { return errors.Is(err, errTrailerTooLarge) }

// Read implements io.Reader.
func (b *Body) Read(p []byte) (n int, err error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	n, b.err = b.from.readBody(p)
	return n, b.err
}

// decode decodes the data of src into dst. It returns the numbers of bytes that it has taken from src
// and put into dst, and io.EOF at the end of the body.
func (b *Body) decode(dst, src []byte) (taken, put int, err error) {
	if b.chunks == nil {
		n := copy(dst, src[:min(int64(len(src)), b.left)])
		if b.left -= int64(n); b.left == 0 {
			err = io.EOF
		}
		return n, n, err
	}
	taken, put, err = b.chunks.decode(dst, src)
	if err == nil && b.chunks.state == complete {
		err = io.EOF
	}
	return taken, put, err
}

// Unread reports whether a part of the body has not been read.
func (b *Body) Unread() bool { return b.err != io.EOF } //nolint:errorlint // Read returns it unwrapped

// skippable reports whether the rest of the body may be short enough to be dropped: it has not been
// refused, and a client that waits for 100 Continue may never send it.
func (b *Body) skippable() bool { return b.err == nil && !b.expects && b.left <= maxSkip }

// readBody implements reader.
func (r *request) readBody(p []byte) (n int, err error) {
	c := r.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.msg.body.expects {
		r.msg.body.expects = false
		if err := r.push([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return 0, err
		}
	}
	for {
		switch {
		case r.over || c.phase != answering:
			return 0, errClosed
		case r.late:
			return 0, os.ErrDeadlineExceeded
		case len(c.in) > 0:
			taken, n, err := r.msg.body.decode(p, c.in)
			c.consume(taken)
			c.regulate()
			if n > 0 || err != nil {
				if err == io.EOF { //nolint:errorlint // decode returns it unwrapped
					c.timer.Stop()
				}
				return n, err
			}
		case c.left:
			return 0, io.ErrUnexpectedEOF
		default:
			r.changed.Wait()
		}
	}
}

// skip drops bytes of the rest of the body. The conn's mu is held.
func (r *request) skip(src []byte) (taken int, err error) {
	var room [512]byte
	for taken < len(src) && r.msg.body.Unread() {
		n, put, err := r.msg.body.decode(room[:], src[taken:])
		taken += n
		r.skipped += put
		switch {
		case err == io.EOF: //nolint:errorlint // decode returns it unwrapped
			r.msg.body.err = err
		case err != nil:
			return taken, err
		case r.skipped > maxSkip:
			return taken, errTooLong
		}
	}
	return taken, nil
}

// errTooLong is the reason why the rest of a body is not skipped.
var errTooLong = errors.New("connection: the rest of the body is too long")
