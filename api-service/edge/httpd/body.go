package httpd

import (
	"errors"
	"io"
	"os"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/netpoll"
)

const (
	// piece bounds the bytes of a chunked body that are looked at in one go.
	piece = 8 << 10
	// maxSkip bounds the rest of a body that is read and dropped to keep the connection, in bytes.
	maxSkip = 256 << 10
)

// A Body reads the body of a request from its connection, when a handler asks for the body. Hertz
// does not read bodies: its readers have no bound for a trailer and for the rest of a refused body,
// refuse chunk extensions, and wait for a body before the request is authenticated.
//
// Read returns io.EOF after the whole body, and os.ErrDeadlineExceeded if the body has not arrived
// in time.
type Body struct {
	conn    network.Conn
	length  int64   // announced length; -1 for a chunked body
	left    int64   // bytes that have not been read, of an announced length
	chunks  *chunks // nil for a body with an announced length
	expects bool    // the client waits for 100 Continue before it sends the body
	err     error   // of all further reads
}

// Of returns the body of a request.
func Of(c *app.RequestContext) *Body {
	if h := headerOf(c); h != nil {
		return &h.body
	}
	return &Body{err: io.EOF}
}

// newBody returns the body of a request with an announced length, or -1 for a chunked body.
func newBody(conn network.Conn, length int64, expects bool) Body {
	b := Body{conn: conn, length: max(length, -1), left: length, expects: expects}
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
	if b.expects {
		b.expects = false
		if _, b.err = b.conn.WriteBinary([]byte("HTTP/1.1 100 Continue\r\n\r\n")); b.err == nil {
			b.err = b.conn.Flush()
		}
		if b.err != nil {
			return 0, b.err
		}
	}
	if b.chunks != nil {
		n, b.err = b.decode(p)
	} else {
		n, b.err = b.take(p)
	}
	if w, ok := b.conn.(Watcher); ok && !b.Unread() {
		w.BodyRead()
	}
	return n, b.err
}

// take reads bytes of a body with an announced length.
func (b *Body) take(p []byte) (int, error) {
	n, err := b.conn.Read(p[:min(int64(len(p)), b.left)])
	if b.left -= int64(n); b.left == 0 {
		return n, io.EOF
	}
	return n, arrivalError(err)
}

// decode reads bytes of a chunked body.
func (b *Body) decode(p []byte) (int, error) {
	for {
		src, err := b.conn.Peek(max(1, min(b.conn.Len(), piece)))
		if err != nil {
			return 0, arrivalError(err)
		}
		taken, put, err := b.chunks.decode(p, src)
		err = errors.Join(err, b.conn.Skip(taken), b.conn.Release())
		switch {
		case err != nil:
			return put, err
		case b.chunks.state == over:
			return put, io.EOF
		case put > 0:
			return put, nil
		}
	}
}

// arrivalError returns the error of Read for an error of the connection.
func arrivalError(err error) error {
	switch {
	case errors.Is(err, netpoll.ErrReadTimeout):
		return os.ErrDeadlineExceeded
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// Unread reports whether a part of the body has not been read.
func (b *Body) Unread() bool { return b.err != io.EOF } //nolint:errorlint // Read returns it unwrapped

// skippable reports whether the rest of the body may be short enough to be dropped: it has not been
// refused, and a client that waits for 100 Continue may never send it.
func (b *Body) skippable() bool { return b.err == nil && !b.expects && b.left <= maxSkip }

// skip reads and drops the rest of the body, and returns an error if it is too long.
func (b *Body) skip() error {
	if _, err := io.CopyN(io.Discard, b, maxSkip); !errors.Is(err, io.EOF) {
		return errors.Join(err, errors.New("the rest of the body is too long"))
	}
	return nil
}
