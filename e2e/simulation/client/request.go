package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Request is one HTTP request, and how its client behaves.
type Request struct {
	Method, Path, Body string
	Header             map[string]string
	Window             int           // bytes of the client's buffer
	Pace               time.Duration // between two reads
}

// An Answer is what a client got.
type Answer struct {
	Status  int    // 0 if there was no response
	Text    string // of the deltas, or of the whole answer
	Done    bool   // [DONE], or a whole answer, has come
	Error   *streamerr.Error
	Tokens  int // completion_tokens of the usage; -1 if there was none
	Whole   bool
	Clean   bool // the body ended as HTTP says
	Left    bool // the client has closed the connection before the end
	Stalled bool // the client has stopped reading, for a while or for good
	Ended   time.Time
	Body    string // of other answers
}

// A Visit is a request that runs.
type Visit struct {
	conn *Conn
	over chan struct{}

	mu      sync.Mutex // guards the following fields
	until   time.Time  // the client does not read before
	left    bool
	stalled bool
	answer  Answer
}

// Visit sends a request. serve is the server's handler of a connection.
func (r *Request) Visit(writeTimeout time.Duration, serve func(*Conn)) *Visit {
	v := &Visit{conn: NewConn(r.Window, writeTimeout), over: make(chan struct{})}
	var b strings.Builder
	b.WriteString(r.Method + " " + r.Path + " HTTP/1.1\r\nHost: localhost\r\n")
	for name, value := range r.Header {
		b.WriteString(name + ": " + value + "\r\n")
	}
	if r.Body != "" {
		b.WriteString("Content-Type: application/json\r\n")
	}
	b.WriteString("Content-Length: " + itoa(len(r.Body)) + "\r\nConnection: close\r\n\r\n" + r.Body)
	v.conn.send([]byte(b.String()))
	go serve(v.conn)
	go func() {
		defer close(v.over)
		answer := v.read(r)
		answer.Ended = time.Now()
		v.mu.Lock()
		answer.Left, answer.Stalled = v.left && !answer.Clean, v.stalled
		v.answer = answer
		v.mu.Unlock()
		v.conn.leave()
	}()
	return v
}

func itoa(n int) string {
	b, _ := json.Marshal(n) //nolint:errchkjson // a number
	return string(b)
}

// Leave closes the client's connection.
func (v *Visit) Leave() {
	v.mu.Lock()
	v.left = true
	v.mu.Unlock()
	v.conn.leave()
}

// Stall has the client not read for a while.
func (v *Visit) Stall(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until, v.stalled = time.Now().Add(d), true
}

// Over is closed when the answer is over.
func (v *Visit) Over() <-chan struct{} { return v.over }

// Answer returns what the client got, once it is over.
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
			return r.v.conn.receive(p)
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
	a.Status = resp.StatusCode
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(resp.Body)
		a.Clean = err == nil
		a.whole(body)
		return a
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadSlice('\n')
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && err == nil {
			a.event(bytes.TrimSpace(data))
		}
		if err != nil {
			a.Clean = errors.Is(err, io.EOF)
			return a
		}
	}
}

// whole reads a body that is no stream.
func (a *Answer) whole(body []byte) {
	a.Body = string(body)
	if e, ok := streamerr.ParseJSON(body); ok && a.Status != http.StatusOK {
		a.Error = e
		return
	}
	a.Whole = a.Clean && a.Status == http.StatusOK
	a.Done = a.Whole
	a.chunk(body)
}

// event reads a data line.
func (a *Answer) event(data []byte) {
	if string(data) == "[DONE]" {
		a.Done = true
		return
	}
	if bytes.HasPrefix(data, []byte(`{"error"`)) {
		a.Error, _ = streamerr.ParseJSON(data)
		return
	}
	a.chunk(data)
}

func (a *Answer) chunk(data []byte) {
	var c struct {
		Choices []struct {
			Text           string
			Delta, Message struct{ Content string }
		}
		Usage *struct {
			Tokens int `json:"completion_tokens"`
		}
	}
	if json.Unmarshal(data, &c) != nil {
		return
	}
	for _, choice := range c.Choices {
		a.Text += choice.Text + choice.Delta.Content + choice.Message.Content
	}
	if c.Usage != nil {
		a.Tokens = c.Usage.Tokens
	}
}
