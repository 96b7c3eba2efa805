// Package client is an HTTP client of the edge on a connection in memory. The client may read slowly,
// stop reading, and leave, in virtual time.
package client

import (
	"bufio"
	"net"
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
	Window             int           // bytes of the client's buffer
	Pace               time.Duration // between two reads
	Events             int           // the client leaves after this many events with an id; 0 means never
	Stall              time.Duration // the client stops reading for this long after its first event with an id; 0 means never
}

// A Visit is a running request.
type Visit struct {
	// Name is the client's address.
	Name string

	conn net.Conn
	over chan struct{}

	mu      sync.Mutex // guards the following fields
	until   time.Time  // the client does not read before this time
	left    time.Time  // when the client left; zero if it did not
	stalled bool
	answer  Answer
}

// Visit sends a request on a connection of the client with a name.
func (r *Request) Visit(name string, conn net.Conn) *Visit {
	v := &Visit{Name: name, conn: conn, over: make(chan struct{})}
	var b strings.Builder
	b.WriteString(r.Method + " " + r.Path + " HTTP/1.1\r\nHost: localhost\r\n")
	for name, value := range r.Header {
		b.WriteString(name + ": " + value + "\r\n")
	}
	if r.Body != "" {
		b.WriteString("Content-Type: application/json\r\n")
	}
	b.WriteString("Content-Length: " + strconv.Itoa(len(r.Body)) + "\r\nConnection: close\r\n\r\n" + r.Body)
	asked := time.Now()
	go func() {
		defer close(v.over)
		_, _ = conn.Write([]byte(b.String())) // fails if the client leaves meanwhile
		answer := v.read(r)
		answer.Asked, answer.Ended = asked, time.Now()
		v.mu.Lock()
		if !answer.Clean {
			answer.Left = v.left
		}
		answer.Stalled, answer.Slow = v.stalled, v.stalled || r.Pace > 0
		v.answer = answer
		v.mu.Unlock()
		_ = conn.Close()
	}()
	return v
}

// Leave closes the client's connection.
func (v *Visit) Leave() {
	v.mu.Lock()
	if v.left.IsZero() {
		v.left = time.Now()
	}
	v.mu.Unlock()
	_ = v.conn.Close()
}

// Stall makes the client stop reading for d.
func (v *Visit) Stall(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until, v.stalled = time.Now().Add(d), true
}

// Over is closed when the answer is over.
func (v *Visit) Over() <-chan struct{} { return v.over }

// Answer waits for the end of the answer and returns it.
func (v *Visit) Answer() Answer {
	<-v.over
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.answer
}

// reader reads at the client's pace.
type reader struct {
	v    *Visit
	pace time.Duration
}

func (r reader) Read(p []byte) (int, error) {
	if r.pace > 0 {
		time.Sleep(r.pace)
	}
	for {
		r.v.mu.Lock()
		waits := time.Until(r.v.until)
		r.v.mu.Unlock()
		if waits <= 0 {
			return r.v.conn.Read(p)
		}
		time.Sleep(waits)
	}
}

func (v *Visit) read(r *Request) Answer {
	a := Answer{Tokens: -1}
	in := bufio.NewReaderSize(reader{v, r.Pace}, 512)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return a
	}
	defer resp.Body.Close() //nolint:errcheck // the connection is closed anyway
	a.Status, a.ID = resp.StatusCode, resp.Header.Get("X-Request-Id")
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		a.readBody(resp.Body)
		return a
	}
	a.readEvents(resp.Body, func(n int) (more bool) {
		if n == 1 && r.Stall > 0 {
			v.Stall(r.Stall)
		}
		if n == r.Events {
			v.Leave()
			return false
		}
		return true
	})
	return a
}
