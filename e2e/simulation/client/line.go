package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Conn is a client's end of a connection.
type Conn interface {
	net.Conn
	// Ended returns when the other side closed the connection, or zero.
	Ended() time.Time
	// Waited returns the longest time for which a write of the other side has waited for the client.
	Waited() time.Duration
}

// A Line is a client's connection, which carries one request after another, or several at a time over
// HTTP/2.
type Line struct {
	// Name is the client's address.
	Name string

	conn   Conn
	wire   net.Conn        // conn at the client's pace, or TLS over it
	secure *tls.Conn       // is wire; nil without TLS
	in     *bufio.Reader   // of the visit whose answer is due; not over HTTP/2
	mux    *http.Transport // nil without HTTP/2
	tail   *Visit          // of the last request; nil without one
	closed chan struct{}   // closed with conn
	hangUp func()          // closes conn

	mu      sync.Mutex    // guards the following fields
	open    int           // visits that are not over
	last    bool          // no further visit begins
	writing bool          // a request
	pace    time.Duration // of the visit whose answer is due
	slow    bool          // the client reads slowly, or did so for an answer before
	until   time.Time     // the client does not read before this time
	left    time.Time     // when the client left; zero if it did not
	stalled bool
	reads   []time.Time // when the client got bytes, if it reads slowly
}

// NewLine returns the line of the client with a name. secure is for TLS; nil means none.
func NewLine(name string, conn Conn, secure *tls.Config, http2 bool) *Line {
	l := &Line{Name: name, conn: conn, closed: make(chan struct{})}
	l.hangUp = sync.OnceFunc(func() {
		close(l.closed)
		_ = conn.Close() // never fails
	})
	l.wire = pacedConn{conn, l}
	switch {
	case secure == nil:
	case http2:
		l.multiplex(secure)
		return l
	default:
		l.secure = tls.Client(l.wire, secure)
		l.wire = l.secure
	}
	l.in = bufio.NewReaderSize(l.wire, 512)
	return l
}

// multiplex makes l speak HTTP/2.
func (l *Line) multiplex(secure *tls.Config) {
	raw, dialed := l.wire, false
	l.mux = &http.Transport{
		Protocols: new(http.Protocols), DisableCompression: true, ExpectContinueTimeout: time.Second, MaxConnsPerHost: 1,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dialed { // the line is this connection
				return nil, net.ErrClosed
			}
			dialed = true
			config := secure.Clone()
			config.NextProtos = []string{"h2"}
			conn := tls.Client(raw, config)
			return conn, conn.HandshakeContext(ctx)
		},
	}
	l.mux.Protocols.SetHTTP2(true)
}

// write writes a part of a request. It fails if the client leaves meanwhile.
func (l *Line) write(b []byte) {
	l.mu.Lock()
	l.writing = true
	l.mu.Unlock()
	_, _ = l.wire.Write(b) // the answer says so
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = false
}

// Leave closes the client's connection, as the kernel does for a process that has been killed.
func (l *Line) Leave() {
	l.mu.Lock()
	if l.left.IsZero() {
		l.left = time.Now()
	}
	l.mu.Unlock()
	l.hangUp()
}

// LeaveGently ends the visit as a program does: over TLS it says so first, and over HTTP/2 it ends only
// the request.
func (v *Visit) LeaveGently() {
	v.mu.Lock()
	idle, reset := !v.writing && v.left.IsZero(), v.reset
	if v.mux != nil {
		v.gone = time.Now()
	}
	v.mu.Unlock()
	switch {
	case v.mux != nil && reset != nil:
		reset()
	case v.mux != nil: // the request begins later, and finds out
	case v.secure != nil && idle:
		_ = v.secure.CloseWrite() // fails before the end of the handshake
		fallthrough
	default:
		v.Leave()
	}
}

// Stall makes the client stop reading for d.
func (l *Line) Stall(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until, l.stalled, l.slow = time.Now().Add(d), true, true
}

// begin begins a visit, which may be the last.
func (l *Line) begin(last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.last = last
}

// end ends a visit. It closes the connection after the last, or if no further answer comes.
func (l *Line) end(shuts bool) {
	l.mu.Lock()
	l.open--
	over := shuts || l.open == 0 && l.last
	l.mu.Unlock()
	if !over {
		return
	}
	if l.mux != nil {
		l.mux.CloseIdleConnections() // says GOAWAY
	} else {
		_ = l.wire.Close() // says so over TLS
	}
	l.hangUp()
}

// A pacedConn reads from a connection at the pace of its line.
type pacedConn struct {
	Conn
	line *Line
}

// Close implements net.Conn.
func (p pacedConn) Close() error {
	p.line.hangUp()
	return nil
}

// Read implements net.Conn.
func (p pacedConn) Read(b []byte) (int, error) {
	l := p.line
	l.mu.Lock()
	waits := l.pace
	l.mu.Unlock()
	for {
		if waits > 0 {
			select {
			case <-time.After(waits):
			case <-l.closed:
				return 0, net.ErrClosed
			}
		}
		l.mu.Lock()
		waits = time.Until(l.until)
		l.mu.Unlock()
		if waits <= 0 {
			break
		}
	}
	n, err := p.Conn.Read(b)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 && l.slow {
		l.reads = append(l.reads, time.Now())
	}
	return n, err
}
