package connection

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/whence-dev/whence/pkg/rpc/guard/flood"
)

const (
	// maxConcurrent bounds the streams of one connection of HTTP/2.
	maxConcurrent = 250
	// maxFrame bounds a frame of a client, in bytes. The protocol allows no less; the library's default
	// is a MiB, and a connection keeps the memory of its longest frame.
	maxFrame = 16 << 10
	// lineEvery is the time between two log lines about floods.
	lineEvery = 10 * time.Second
)

// An http2Server serves the connections whose clients have chosen HTTP/2. The HTTP/2 of net/http
// answers SETTINGS, PRIORITY and RST_STREAM for as long as a client sends them; here, the connection
// ends after a flood.
type http2Server struct {
	frames *http2.Server //nolint:staticcheck // see newHTTP2
	base   *http.Server
	report flood.Report
}

// overHTTP2 returns the server of HTTP/2 of s.
func (s *Server) overHTTP2() *http2Server {
	s.makeHTTP2.Do(func() { s.http2 = s.newHTTP2() })
	return s.http2
}

//nolint:staticcheck // net/http takes no connection that flood.Meter counts, so its deprecated predecessor serves it
func (s *Server) newHTTP2() *http2Server {
	h := &http2Server{
		frames: &http2.Server{
			MaxConcurrentStreams: maxConcurrent,
			MaxReadFrameSize:     maxFrame,
			IdleTimeout:          s.Idle,
			// The writers of the streams find slow readers, and say so; the bound of each write (cipher.Write) closes a
			// connection whose streams have ended. There are no pings: their answers wait behind all that a slow reader has
			// not read.
		},
		base: &http.Server{
			MaxHeaderBytes: MaxHeader, ReadHeaderTimeout: s.Arrival, ErrorLog: log.New(io.Discard, "", 0),
		},
		report: s.flooded(),
	}
	_ = http2.ConfigureServer(h.base, h.frames) // fails only for a configuration of TLS, which the base has not
	return h
}

// serveHTTP2 serves a connection until it is closed.
func (s *Server) serveHTTP2(c *Conn) {
	h := s.overHTTP2()
	h.frames.ServeConn( //nolint:staticcheck // as above
		// The library refuses streams beyond maxConcurrent; twice as many are a client that does not listen.
		secureConn{flood.FromConn(c.cipher.tls, 2*maxConcurrent, h.report), c.cipher.tls},
		&http2.ServeConnOpts{BaseConfig: h.base, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serveStream(w, r) })}, //nolint:staticcheck // as above
	)
}

// A secureConn lets the HTTP/2 server see the state of TLS.
type secureConn struct {
	*flood.Conn
	secure *tls.Conn
}

// ConnectionState returns the state of TLS.
func (c secureConn) ConnectionState() tls.ConnectionState { return c.secure.ConnectionState() }

// flooded returns the function that logs the connections that end because of a flood.
func (s *Server) flooded() flood.Report {
	var mu sync.Mutex // guards last
	var last time.Time
	return func(client net.Addr, err error) {
		mu.Lock()
		defer mu.Unlock()
		if s.Log == nil || !last.IsZero() && time.Since(last) < lineEvery {
			return
		}
		last = time.Now()
		s.Log.Warn("an https connection was closed", "hop", s.Hop, "client", client.String(), "err", err)
	}
}

// serveStream answers a request of HTTP/2, and returns when the answer has ended.
func (c *Conn) serveStream(w http.ResponseWriter, r *http.Request) {
	x := &streamRequest{noConn: noConn{remote: c.remote, local: c.local}, conn: c, w: w, control: http.NewResponseController(w), in: r}
	x.changed.L = &x.mu
	undo := context.AfterFunc(r.Context(), x.lose)
	defer undo()
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		c.server.handle(x, r.Context())
	}()
	whole := x.write()
	x.Cut()   // nothing more is written
	<-handled // it uses the request
	x.mu.Lock()
	x.ended = true
	x.mu.Unlock()
	if !whole {
		panic(http.ErrAbortHandler) // resets the stream
	}
}

// raw returns the header of a request of HTTP/2 as one of HTTP/1.1, so that all requests are parsed by
// the same code. net/http has checked the fields.
func raw(r *http.Request) []byte {
	var b bytes.Buffer
	b.WriteString(r.Method + " " + r.URL.RequestURI() + " HTTP/1.1\r\nHost: " + r.Host + "\r\n")
	header := r.Header.Clone()
	for _, name := range []string{"Host", "Connection", "Transfer-Encoding", "Content-Length", "Upgrade", "Trailer"} {
		header.Del(name)
	}
	_ = header.Write(&b) // a buffer takes everything
	b.WriteString("\r\n")
	return b.Bytes()
}

// bodyError returns the error of a Body for one of net/http.
func bodyError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return err
}
