package overhttp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/whence-dev/whence/internal/nowait"
)

const (
	dialTimeout = 5 * time.Second
	// keepAlive is the interval of TCP keep-alive probes. They detect a host that vanished without
	// closing its connections.
	keepAlive  = 15 * time.Second
	maxHeaders = 64 << 10
	// maxRest bounds what may follow the last event of a complete answer, in bytes, and restWait the
	// time until the response has ended. A connection that exceeds them is closed.
	maxRest  = 4 << 10
	restWait = 2 * time.Second
)

var (
	// errSilent is the error of a connection that ended before a byte of the response had come.
	errSilent = errors.New("the connection ended before the response")
	// errLongHeaders is the error of a response with too many headers.
	errLongHeaders = fmt.Errorf("the response has more than %d bytes of headers", maxHeaders)
)

// A conn is a connection to the server. It carries one request after the other, and belongs to one wire
// at a time.
type conn struct {
	net.Conn           // of TLS, or tcp itself
	tcp      net.Conn  // below TLS
	in       io.Reader // what Read reads
	r        *bufio.Reader
	room     int64 // bytes that may be read; negative if they are not bounded

	since time.Time // when the last response had ended

	// Of the current request.
	written chan error // capacity 1: the result of writing the request
	body    io.Reader
	once    bool // the response says, or implies, that its end is that of the connection
}

// A dialer connects to the server.
type dialer struct {
	addr string
	tls  *tls.Config // nil without TLS
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// connect opens a connection.
func (d *dialer) connect(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	tcp, err := d.dial(ctx, "tcp", d.addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: tcp, tcp: tcp, in: tcp}
	if d.tls != nil {
		t := tls.Client(tcp, d.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = tcp.Close() // the handshake's error says more
			return nil, err
		}
		c.Conn, c.in = t, t
	} else if direct := nowait.New(tcp); direct != nil {
		c.in = direct
	}
	c.r = bufio.NewReader(c)
	return c, nil
}

// Read implements io.Reader for c.r.
func (c *conn) Read(b []byte) (n int, err error) {
	if c.room == 0 {
		return 0, errLongHeaders
	}
	if c.room > 0 && int64(len(b)) > c.room {
		b = b[:c.room]
	}
	n, err = c.in.Read(b)
	if c.room > 0 {
		c.room -= int64(n)
	}
	return n, err
}

// Close closes the connection at once: the Close of TLS would first send an alert.
func (c *conn) Close() error { return c.tcp.Close() }

// exchange sends a request and returns the response, whose body can be read from c. It does not wait
// until the request is written, because a server may refuse a long one without reading it.
func (c *conn) exchange(head, body []byte) (*http.Response, error) {
	c.written = make(chan error, 1)
	go func() {
		request := net.Buffers{head, body}
		_, err := request.WriteTo(c.Conn)
		if err != nil { // the server may have said why before it closed the connection
			_ = c.SetReadDeadline(time.Now().Add(patience)) // fails only if the connection is closed
		}
		c.written <- err
	}()
	c.room = maxHeaders
	if _, err := c.r.Peek(1); err != nil {
		return nil, fmt.Errorf("%w: %w", errSilent, err)
	}
	for {
		resp, err := http.ReadResponse(c.r, nil)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols:
			c.room = -1
			c.body, c.once = resp.Body, resp.Close || resp.StatusCode < 200
			return resp, nil
		}
	}
}

// drain reads the rest of the response, and reports whether another request may use the connection:
// the request is written, the response has ended as its framing says, and nothing follows it.
func (c *conn) drain() (reusable bool) {
	if c.SetReadDeadline(time.Now().Add(restWait)) != nil {
		return false
	}
	n, err := io.Copy(io.Discard, io.LimitReader(c.body, maxRest+1))
	if err != nil || n > maxRest || c.r.Buffered() > 0 {
		return false
	}
	late := time.NewTimer(restWait)
	defer late.Stop()
	select {
	case err = <-c.written:
	case <-late.C: // the server has answered without reading the request
		return false
	}
	c.body = nil
	return err == nil && c.nothingDecrypted() && c.SetReadDeadline(time.Time{}) == nil
}

// nothingDecrypted reports whether TLS, if there is any, has read nothing beyond what c.r has read.
func (c *conn) nothingDecrypted() bool {
	if c.Conn == c.tcp {
		return true
	}
	if c.SetReadDeadline(time.Unix(1, 0)) != nil { // it ends only reads of the TCP connection
		return false
	}
	_, err := c.r.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}
