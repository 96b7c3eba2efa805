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
	Window             int           // bytes of the client's buffer, for the first request of a connection
	Pace               time.Duration // between two reads
	Events             int           // the client leaves after this many events with an id; 0 means never
	Stall              time.Duration // the client stops reading for this long after its first event with an id; 0 means never
	Ahead              bool          // the request does not wait for the answer to the one before it
	Follows            bool          // another request follows on the connection
}

// A Conn is a client's end of a connection.
type Conn interface {
	net.Conn
	// Ended returns when the other side closed the connection, or zero.
	Ended() time.Time
	// Waited returns the longest time for which a write of the other side has waited for the client.
	Waited() time.Duration
}

// A Line is a client's connection, which carries one request after another.
type Line struct {
	// Name is the client's address.
	Name string

	conn Conn
	in   *bufio.Reader // of the visit whose answer is due
	tail *Visit        // of the last request; nil without one

	mu      sync.Mutex    // guards the following fields
	pace    time.Duration // of the visit whose answer is due
	slow    bool          // the client reads slowly, or did so for an answer before
	until   time.Time     // the client does not read before this time
	left    time.Time     // when the client left; zero if it did not
	stalled bool
	reads   []time.Time // when the client got bytes, if it reads slowly
}

// NewLine returns the line of the client with a name.
func NewLine(name string, conn Conn) *Line {
	l := &Line{Name: name, conn: conn}
	l.in = bufio.NewReaderSize(l, 512)
	return l
}

// A Visit is a running request.
type Visit struct {
	*Line
	sent   chan struct{} // closed when the request is written
	over   chan struct{}
	answer Answer // set when over is closed
	shuts  bool   // no further answer comes on the connection; set when over is closed
}

// Visit sends a request. Calls for one Line must not be concurrent.
func (l *Line) Visit(r *Request) *Visit {
	v := &Visit{Line: l, sent: make(chan struct{}), over: make(chan struct{})}
	before := l.tail
	l.tail = v
	go func() {
		defer close(v.over)
		if before != nil {
			<-before.sent
			if !r.Ahead {
				<-before.over
			}
		}
		asked := time.Now()
		_, _ = l.conn.Write(r.text()) // fails if the client leaves meanwhile
		close(v.sent)
		if before != nil {
			<-before.over
		}
		if v.shuts = before != nil && before.shuts; v.shuts {
			v.answer = Answer{Tokens: -1, Shut: true}
		} else {
			v.answer = v.read(r)
		}
		v.note(asked)
		if v.shuts || !r.Follows {
			_ = l.conn.Close()
		}
	}()
	return v
}

// text encodes the request.
func (r *Request) text() []byte {
	var b strings.Builder
	b.WriteString(r.Method + " " + r.Path + " HTTP/1.1\r\nHost: localhost\r\n")
	for name, value := range r.Header {
		b.WriteString(name + ": " + value + "\r\n")
	}
	if r.Body != "" {
		b.WriteString("Content-Type: application/json\r\n")
	}
	if !r.Follows {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("Content-Length: " + strconv.Itoa(len(r.Body)) + "\r\n\r\n" + r.Body)
	return []byte(b.String())
}

// note records the state of the connection in the answer.
func (v *Visit) note(asked time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a := &v.answer
	a.Asked, a.Ended, a.Closed, a.Waited = asked, time.Now(), v.conn.Ended(), v.conn.Waited()
	if !a.Clean {
		a.Left, v.shuts = v.left, true
	}
	a.Shut = a.Shut && v.left.IsZero()
	a.Stalled, a.Slow, a.Reads = v.stalled, v.slow, v.reads
}

// Leave closes the client's connection.
func (l *Line) Leave() {
	l.mu.Lock()
	if l.left.IsZero() {
		l.left = time.Now()
	}
	l.mu.Unlock()
	_ = l.conn.Close()
}

// Stall makes the client stop reading for d.
func (l *Line) Stall(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until, l.stalled, l.slow = time.Now().Add(d), true, true
}

// Over is closed when the answer is over.
func (v *Visit) Over() <-chan struct{} { return v.over }

// Answer waits for the end of the answer and returns it.
func (v *Visit) Answer() Answer {
	<-v.over
	return v.answer
}

// Read reads from the connection at the client's pace.
func (l *Line) Read(p []byte) (int, error) {
	l.mu.Lock()
	waits := l.pace
	l.mu.Unlock()
	for {
		if waits > 0 {
			time.Sleep(waits)
		}
		l.mu.Lock()
		waits = time.Until(l.until)
		l.mu.Unlock()
		if waits <= 0 {
			break
		}
	}
	n, err := l.conn.Read(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 && l.slow {
		l.reads = append(l.reads, time.Now())
	}
	return n, err
}

func (v *Visit) read(r *Request) Answer {
	a := Answer{Tokens: -1}
	v.mu.Lock()
	v.pace, v.slow = r.Pace, v.slow || r.Pace > 0
	v.mu.Unlock()
	resp, err := http.ReadResponse(v.in, nil)
	if err != nil {
		return a
	}
	defer resp.Body.Close() //nolint:errcheck // the rest is not read
	a.Status, a.ID = resp.StatusCode, resp.Header.Get("X-Request-Id")
	v.shuts = resp.Close
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
