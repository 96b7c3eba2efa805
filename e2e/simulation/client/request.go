// Package client is an HTTP client of the edge on a connection in memory: over HTTP/1.1, with and
// without TLS, over HTTP/2, and over a WebSocket. The client may read slowly, stop reading, and leave, in
// virtual time.
package client

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Request is one HTTP request, with the behaviour of its client.
type Request struct {
	Method, Path, Body string
	Header             map[string]string
	HTTP2              bool          // a connection with TLS has HTTP/2, for the first request of a connection
	Socket             bool          // the answer comes over a WebSocket
	Chunked            bool          // the length of the body is not announced
	Expects            bool          // the body waits until it is asked for
	Window             int           // bytes of the client's buffer, for the first request of a connection
	Pace               time.Duration // between two reads
	Events             int           // the client leaves after this many events with an id; 0 means never
	Stall              time.Duration // the client stops reading for this long after its first event with an id; 0 means never
	Ahead              bool          // the request does not wait for the answer to the one before it
	Follows            bool          // another request follows on the connection
}

// A Visit is a running request.
type Visit struct {
	*Line
	sent   chan struct{} // closed when the request is written
	over   chan struct{}
	answer Answer // set when over is closed
	shuts  bool   // no further answer comes on the connection; set when over is closed

	// Guarded by the line's mu.
	reset context.CancelFunc // ends a request over HTTP/2; nil before it begins
	gone  time.Time          // when the client ended the request; zero if it did not
}

// Visit sends a request. Calls for one Line must not be concurrent.
func (l *Line) Visit(r *Request) *Visit {
	v := &Visit{Line: l, sent: make(chan struct{}), over: make(chan struct{})}
	before := l.tail
	l.tail = v
	l.begin(!r.Follows)
	go func() {
		defer close(v.over)
		if before != nil {
			<-before.sent
			if !r.Ahead {
				<-before.over
			}
		}
		asked := time.Now()
		if l.mux != nil {
			close(v.sent)
			v.answer = v.amongOthers(r)
		} else {
			v.answer = v.inTurn(r, before)
		}
		v.note(asked)
		l.end(v.shuts)
	}()
	return v
}

// inTurn sends a request over HTTP/1.1, and reads the answer after the one before.
func (v *Visit) inTurn(r *Request, before *Visit) Answer {
	sent := sync.OnceFunc(func() { close(v.sent) })
	defer sent()
	head, body := r.text()
	if r.Expects {
		v.write(head)
	} else {
		v.write(append(head, body...))
		sent()
	}
	if before != nil {
		<-before.over
	}
	if v.shuts = before != nil && before.shuts; v.shuts {
		return Answer{Tokens: -1, Shut: true}
	}
	v.paceAt(r.Pace)
	resp, err := http.ReadResponse(v.in, nil) //nolint:bodyclose // read does
	if err == nil && resp.StatusCode == http.StatusContinue {
		v.write(body)
		resp, err = http.ReadResponse(v.in, nil) //nolint:bodyclose // read does
	}
	sent()
	return v.read(r, resp, err)
}

// amongOthers sends a request over HTTP/2, and reads the answer.
func (v *Visit) amongOthers(r *Request) Answer {
	v.paceAt(r.Pace)
	ctx, reset := context.WithCancel(context.Background())
	defer reset()
	v.mu.Lock()
	v.reset = reset
	if !v.gone.IsZero() {
		reset()
	}
	v.mu.Unlock()
	body := io.Reader(strings.NewReader(r.Body))
	if r.Chunked {
		body = io.MultiReader(body) // has no length
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, "https://localhost"+r.Path, body)
	if err != nil {
		panic(err) // cannot fail: paths are those of the schedule
	}
	for name, value := range r.fields() {
		req.Header.Set(name, value)
	}
	resp, err := v.mux.RoundTrip(req)
	return v.read(r, resp, err)
}

// fields returns the header.
func (r *Request) fields() map[string]string {
	fields := map[string]string{}
	for name, value := range r.Header {
		fields[name] = value
	}
	if r.Body != "" {
		fields["Content-Type"] = "application/json"
	}
	if r.Expects {
		fields["Expect"] = "100-continue"
	}
	return fields
}

// text encodes the request for HTTP/1.1.
func (r *Request) text() (head, body []byte) {
	var b strings.Builder
	b.WriteString(r.Method + " " + r.Path + " HTTP/1.1\r\nHost: localhost\r\n")
	for name, value := range r.fields() {
		b.WriteString(name + ": " + value + "\r\n")
	}
	switch {
	case r.Socket:
		b.WriteString("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
	case !r.Follows:
		b.WriteString("Connection: close\r\n")
	}
	if r.Chunked {
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		return []byte(b.String()), chunked(r.Body)
	}
	b.WriteString("Content-Length: " + strconv.Itoa(len(r.Body)) + "\r\n\r\n")
	return []byte(b.String()), []byte(r.Body)
}

// chunked encodes a body in chunks.
func chunked(body string) []byte {
	var b strings.Builder
	for size := 7; body != ""; size *= 7 {
		n := min(size, len(body))
		b.WriteString(strconv.FormatInt(int64(n), 16) + "\r\n" + body[:n] + "\r\n")
		body = body[n:]
	}
	return []byte(b.String() + "0\r\n\r\n")
}

// note records the state of the connection in the answer.
func (v *Visit) note(asked time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a := &v.answer
	a.Asked, a.Ended, a.Closed, a.Waited = asked, time.Now(), v.conn.Ended(), v.conn.Waited()
	if !a.Clean {
		a.Left, v.shuts = v.left, v.mux == nil
		if !v.gone.IsZero() {
			a.Left = v.gone
		}
	}
	a.Shut = a.Shut && v.left.IsZero()
	a.Stalled, a.Slow, a.Muxed, a.Reads = v.stalled, v.slow, v.mux != nil, v.reads
}

// Over is closed when the answer is over.
func (v *Visit) Over() <-chan struct{} { return v.over }

// Answer waits for the end of the answer and returns it.
func (v *Visit) Answer() Answer {
	<-v.over
	return v.answer
}

// paceAt sets the time between two reads.
func (v *Visit) paceAt(pace time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pace, v.slow = pace, v.slow || pace > 0
}

// read reads an answer.
func (v *Visit) read(r *Request, resp *http.Response, err error) Answer {
	a := Answer{Tokens: -1}
	if err != nil {
		return a
	}
	defer resp.Body.Close() //nolint:errcheck // the rest is not read
	a.Status, a.ID = resp.StatusCode, resp.Header.Get("X-Request-Id")
	v.shuts = resp.Close && v.mux == nil
	heard := func(n int) (more bool) {
		if n == 1 && r.Stall > 0 {
			v.Stall(r.Stall)
		}
		if n == r.Events {
			v.LeaveGently()
			return false
		}
		return true
	}
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		a.Status = http.StatusOK // as of the other readers
		v.readSocket(&a, heard)
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		a.readEvents(resp.Body, heard)
	default:
		a.readBody(resp.Body)
	}
	return a
}
