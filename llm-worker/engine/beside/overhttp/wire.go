package overhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// errHungUp is the error of a request after hangUp.
var errHungUp = errors.New("the request was aborted")

// A wire is one request, and holds its connection until the answer is complete.
type wire struct {
	client *Client

	mu     sync.Mutex         // guards the following fields
	cancel context.CancelFunc // of dialing; nil before
	conn   *conn              // nil before it is connected, and after release
	cut    bool
}

// send sends the request and returns the response. It uses only the values of ctx; hangUp ends it.
// The body of the response is read from the connection, and needs no Close: the caller calls release
// or hangUp, from the goroutine that reads.
//
// A server may close an idle connection just when the request is sent. So a request whose connection had
// been used before, and ended before the first byte of the response, is repeated once, on a new one.
func (w *wire) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	head := w.client.head(ctx, method, path, body)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if !w.begin(cancel) {
		return nil, errHungUp
	}
	if c := w.client.idle.take(); c != nil {
		resp, err := w.exchange(c, head, body)
		if !errors.Is(err, errSilent) {
			return resp, err
		}
		w.client.idle.flush() // those that the server has not closed yet are hardly worth a second try
	}
	c, err := w.client.dialer.connect(ctx)
	if err != nil {
		return nil, err
	}
	return w.exchange(c, head, body)
}

// begin records how to end dialing. It reports false if the request was aborted before.
func (w *wire) begin(cancel context.CancelFunc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel = cancel
	return !w.cut
}

// exchange sends the request over c.
func (w *wire) exchange(c *conn, head, body []byte) (*http.Response, error) {
	w.mu.Lock()
	if w.cut {
		w.mu.Unlock()
		_ = c.Close() // nothing was sent
		return nil, errHungUp
	}
	w.conn = c
	w.mu.Unlock()
	resp, err := c.exchange(head, body)
	if err == nil {
		return resp, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = c.Close() // it may be closed already
	w.conn = nil
	if w.cut {
		return nil, errHungUp
	}
	return nil, err
}

// hangUp closes the connection, whether it is dialing, waiting for the response's header, or
// reading. When it returns, the kernel has closed the connection. After release it does nothing.
func (w *wire) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	if w.conn != nil {
		_ = w.conn.Close() // it may be closed already
	}
	if w.cancel != nil {
		w.cancel()
	}
}

// release gives the connection of a complete answer to later requests. It does not wait for the end of
// the response.
func (w *wire) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.conn; c != nil && !w.cut {
		w.conn = nil
		w.client.idle.give(c)
	}
}

// refused converts a response that is not an answer to an ending. It reads the body for a limited time.
func (w *wire) refused(resp *http.Response) *streamerr.Error {
	_ = w.conn.SetReadDeadline(time.Now().Add(patience)) // a closed connection ends the read, too
	defer w.release()
	return w.client.refused(resp)
}

// head returns the first lines of a request.
func (c *Client) head(ctx context.Context, method, path string, body []byte) []byte {
	header := make(http.Header, 8)
	header.Set("User-Agent", "whence")
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		header.Set("Authorization", "Bearer "+c.key)
	}
	if c.rank != (beside.Rank{}) {
		header.Set("X-Data-Parallel-Rank", c.rank.String()) // of vLLM and SGLang
	}
	if id := stream.ID(ctx); id != "" {
		header.Set("X-Request-Id", id) // vLLM writes it to its log and uses it in its ids
	}
	ledger.Parent(ctx).Each(header.Set)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, c.prefix+path, c.host)
	if body != nil {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	_ = header.Write(&b) // a buffer takes everything
	b.WriteString("\r\n")
	return b.Bytes()
}
