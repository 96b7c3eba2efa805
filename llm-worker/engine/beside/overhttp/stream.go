package overhttp

import (
	"context"
	"net/http"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// A Stream is a request whose answer is a stream of events.
type Stream struct {
	client *Client
	wire   wire
	path   string
	body   []byte
	prompt int // tokens

	next func() ([]byte, error)
}

// Stream returns a request for the answer to a prompt of so many tokens; nothing is sent yet.
func (c *Client) Stream(path string, body []byte, prompt int) *Stream {
	return &Stream{client: c, path: path, body: body, prompt: prompt}
}

// Open sends the request, and returns when the head of an answer has come. Of ctx it takes the values; HangUp ends it.
func (s *Stream) Open(ctx context.Context) error {
	resp, err := s.client.ask(s.wire.lay(ctx), http.MethodPost, s.path, s.body) //nolint:bodyclose // it ends with its connection
	if err != nil {
		return beside.Unavailable(err)
	}
	if resp.StatusCode != http.StatusOK || !isEvents(resp) {
		defer closeAfter(resp.Body, patience)() // why it is none is read, but not for ever
		return refused(resp)
	}
	s.next = Events(resp.Body, s.prompt)
	return nil
}

func isEvents(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}

// Next returns the data of the next event, which is valid until the next call.
func (s *Stream) Next() ([]byte, error) { return s.next() }

// HangUp closes the connection, whatever waits for it. When it returns, the kernel has closed it. It may be called by another
// goroutine than the other methods, and again.
func (s *Stream) HangUp() { s.wire.hangUp() }
