package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/bench/paced"
)

const (
	// bufferSize is the size of each of a connection's two buffers, in bytes.
	bufferSize = 2 << 10
	// silence is the time without data after which a stream has failed.
	silence = 30 * time.Second
	dialing = 10 * time.Second
)

// A Request is one chat completion.
type Request struct {
	Tokens int           // of the answer
	Prompt string        // the text of the user's message, without quotes and backslashes
	Life   time.Duration // the client leaves after this time; 0 means never
}

// streams numbers the streams of this process. The number is the request's seed.
var streams atomic.Uint64

// A conn is a client that requests one stream after another on a keep-alive connection.
type conn struct {
	addr   string
	shard  *shard
	on     *atomic.Bool // whether latencies are measured
	net    net.Conn
	at     time.Time // of the last read
	in     *bufio.Reader
	lines  *bufio.Reader
	out    []byte
	batch  []time.Duration // latencies of the tokens of one read
	clock  paced.Reader
	tokens int
	stays  func() bool // reports whether the client has no reason to leave
	next   func() Request
}

func (r *Recorder) conn(addr string, next func() Request) *conn {
	c := &conn{addr: addr, shard: r.shard(), on: &r.measuring, next: next}
	c.in, c.lines = bufio.NewReaderSize(c, bufferSize), bufio.NewReaderSize(nil, bufferSize)
	return c
}

// Read reads from the connection, and records the time.
func (c *conn) Read(b []byte) (int, error) {
	c.flush()
	n, err := c.net.Read(b)
	for n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.renew() {
		n, err = c.net.Read(b)
	}
	c.at = time.Now()
	return n, err
}

// renew sets the deadline of a read to silence after the last data. It reports false if the client
// must leave or the silence has passed. It runs only when a read times out, so the deadline costs
// nothing while data arrives.
func (c *conn) renew() bool {
	until := c.at.Add(silence)
	if !c.stays() || !time.Now().Before(until) || c.net.SetReadDeadline(until) != nil {
		return false
	}
	return c.stays() // this deadline may have overwritten the deadline with which a client leaves
}

// flush records the tokens of the previous read.
func (c *conn) flush() {
	if len(c.batch) > 0 {
		c.shard.add(c.batch, c.on.Load())
		c.batch = c.batch[:0]
	}
}

// Close implements load.Client.
func (c *conn) Close() {
	if c.net != nil {
		_ = c.net.Close() // the client leaves with unread data
		c.net = nil
	}
}

// stream requests one stream and reads it. intended is its scheduled time. If ctx ends, or the
// request's life, the client leaves. stream records the outcome, and reports false if the stream
// failed.
func (c *conn) stream(ctx context.Context, req Request, intended time.Time) bool {
	id := streams.Add(1)
	c.tokens = 0
	err := c.exchange(ctx, id, req, intended)
	c.flush()
	if err == nil {
		c.shard.completed()
		return true
	}
	over := ctx.Err() != nil || req.Life > 0 && errors.Is(err, os.ErrDeadlineExceeded)
	at := time.Now()
	c.Close()
	switch {
	case !over:
		c.shard.fail(fmt.Errorf("after %d tokens: %w", c.tokens, err))
	case c.tokens > 0 || req.Life > 0:
		c.shard.leave(Departure{Stream: id, At: at, Received: c.tokens})
	}
	return over
}

// exchange sends the request and reads the answer to its end.
func (c *conn) exchange(ctx context.Context, id uint64, req Request, intended time.Time) error {
	if c.net == nil {
		dialer := net.Dialer{Timeout: dialing}
		n, err := dialer.DialContext(ctx, "tcp", c.addr)
		if err != nil {
			return err
		}
		c.net = n
		c.in.Reset(c)
	}
	n := c.net
	// A deadline in the past wakes the reader, which then leaves.
	defer context.AfterFunc(ctx, func() { _ = n.SetReadDeadline(time.Unix(1, 0)) })()
	limit := silence
	if req.Life > 0 {
		limit = req.Life
	}
	c.at, c.stays = time.Now(), func() bool { return req.Life == 0 && ctx.Err() == nil }
	if err := n.SetReadDeadline(c.at.Add(limit)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // the deadline may have been overwritten
		return err
	}
	c.clock.Begin(time.Now())
	c.out = appendRequest(c.out[:0], c.addr, id, req)
	if _, err := n.Write(c.out); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end, or its connection is closed
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, bufferSize))
		return fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	c.lines.Reset(resp.Body)
	if err := c.answer(intended); err != nil {
		return err
	}
	if c.tokens != req.Tokens {
		return fmt.Errorf("the answer has %d tokens, not %d", c.tokens, req.Tokens)
	}
	if resp.Close {
		c.flush()
		c.Close()
	}
	return nil
}

var (
	contentMark = []byte(`"content":"`)
	dataMark    = []byte("data: ")
	errorMark   = []byte(`data: {"error"`)
	doneMark    = []byte("data: [DONE]")
)

// answer reads events up to the end of the body.
func (c *conn) answer(intended time.Time) error {
	done := false
	for {
		line, err := c.lines.ReadSlice('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && done {
				return nil
			}
			return err
		}
		switch {
		case bytes.HasPrefix(line, doneMark):
			done = true
		case bytes.HasPrefix(line, errorMark):
			return fmt.Errorf("the stream ended with %s", bytes.TrimSpace(line))
		case bytes.HasPrefix(line, dataMark):
			if err := c.event(line, intended); err != nil {
				return err
			}
		}
	}
}

// event reads the tokens of one event.
func (c *conn) event(line []byte, intended time.Time) error {
	_, text, ok := bytes.Cut(line, contentMark)
	if !ok {
		return nil
	}
	for len(text) > 0 && text[0] != '"' {
		due, rest, ok := c.clock.Next(text)
		if !ok {
			return fmt.Errorf("the text is not a token: %q", line)
		}
		if c.tokens++; c.tokens == 1 {
			c.shard.first(c.at.Sub(intended))
		}
		c.batch = append(c.batch, c.at.Sub(due))
		text = rest
	}
	return nil
}

// Path is the path of requests.
const Path = "/v1/chat/completions"

// Body returns the body of a request for the stream with a number.
func Body(id uint64, req Request) string {
	return fmt.Sprintf(`{"model":"%s","stream":true,"ignore_eos":true,"seed":%d,"max_tokens":%d,"messages":[{"role":"user","content":"%s"}]}`, paced.Model, id, req.Tokens, req.Prompt)
}

// appendRequest appends an HTTP request.
func appendRequest(b []byte, host string, id uint64, req Request) []byte {
	body := Body(id, req)
	b = append(b, "POST "+Path+" HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	b = append(b, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	return append(b, body...)
}
