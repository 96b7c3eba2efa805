package connection

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol"
	"github.com/cloudwego/hertz/pkg/protocol/consts"
	"github.com/cloudwego/hertz/pkg/protocol/http1/req"
)

// A message is what all requests have.
type message struct {
	head head
	body Body
}

// noBody is Hertz's length of a request that announces no body.
const noBody = -2

// parse parses a header, and prepares the body, which is read from a reader. It returns the status of a
// refusal, or 0.
func (m *message) parse(h *protocol.RequestHeader, raw []byte, from reader) (refusal int) {
	switch {
	case m.head.late:
		return http.StatusRequestTimeout
	case !m.head.whole && len(raw) >= MaxHeader:
		return http.StatusRequestHeaderFieldsTooLarge
	case !m.head.whole || req.ReadHeaderWithLimit(h, &memory{raw}, MaxHeader) != nil:
		return http.StatusBadRequest
	}
	length := int64(h.ContentLength())
	if length == noBody {
		length = 0
	}
	m.body = newBody(from, length, len(h.Peek(consts.HeaderExpect)) > 0)
	if length != 0 { // Hertz does not know the body
		h.SetContentLength(0)
		h.Del(consts.HeaderExpect)
	}
	return 0
}

// handle has the router answer a request. ctx is done when its client has left.
func (s *Server) handle(x exchange, ctx context.Context) { //nolint:revive // the request comes first
	pool := s.Engine.GetCtxPool()
	c := pool.Get().(*app.RequestContext) //nolint:forcetypeassert // the pool has nothing else
	defer func() {
		if !c.IsExiled() {
			c.Reset()
			pool.Put(c)
		}
	}()
	c.SetConn(x)
	status := x.parse(&c.Request.Header)
	if s.Name != "" {
		c.Response.Header.SetServerBytes([]byte(s.Name))
	}
	if status != 0 {
		refuse(c, status)
	} else {
		s.Engine.ServeHTTP(ctx, c)
	}
	if !x.isTaken() {
		c.Response.SkipBody = c.Response.SkipBody || c.IsHead()
		x.answer(&c.Response)
	}
}

// refuse answers a request that is none, as Hertz does.
func refuse(c *app.RequestContext, status int) {
	text := "Error when parsing request"
	switch status {
	case http.StatusRequestTimeout:
		text = "Request timeout"
	case http.StatusRequestHeaderFieldsTooLarge:
		text = "Request Header Fields Too Large"
	}
	c.AbortWithMsg(text, status)
}

// A memory is the header of a request, from which Hertz reads.
type memory struct{ b []byte }

// Peek implements network.Reader.
func (m *memory) Peek(n int) ([]byte, error) {
	if n > len(m.b) {
		return nil, io.ErrUnexpectedEOF
	}
	return m.b[:n], nil
}

// Skip implements network.Reader.
func (m *memory) Skip(n int) error {
	if n > len(m.b) {
		return io.ErrUnexpectedEOF
	}
	m.b = m.b[n:]
	return nil
}

// Release implements network.Reader.
func (m *memory) Release() error { return nil }

// Len implements network.Reader.
func (m *memory) Len() int { return len(m.b) }

// ReadByte implements network.Reader.
func (m *memory) ReadByte() (byte, error) {
	b, err := m.ReadBinary(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// ReadBinary implements network.Reader.
func (m *memory) ReadBinary(n int) ([]byte, error) {
	b, err := m.Peek(n)
	return b, errors.Join(err, m.Skip(len(b)))
}

// A buffer collects a response. It implements network.Writer.
type buffer []byte

// Malloc returns n more bytes, which are valid until the next call.
func (b *buffer) Malloc(n int) ([]byte, error) {
	*b = append(*b, make([]byte, n)...)
	return (*b)[len(*b)-n:], nil
}

// WriteBinary implements network.Writer.
func (b *buffer) WriteBinary(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// Flush implements network.Writer.
func (b *buffer) Flush() error { return nil }
