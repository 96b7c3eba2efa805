package overhttp

import (
	"context"
	"net/http"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// A Stream is a request whose answer is a stream of events, or of lines.
type Stream struct {
	wire   wire
	path   string
	body   []byte
	prompt int // tokens
	media  mediaType

	next func() ([]byte, error)
}

// Stream returns a request for the answer to a prompt of prompt tokens. It sends nothing.
func (c *Client) Stream(path string, body []byte, prompt int) *Stream {
	return &Stream{wire: wire{client: c}, path: path, body: body, prompt: prompt, media: serverSentEvents}
}

// Lines returns a request whose answer is a line of JSON for each event. It sends nothing.
func (c *Client) Lines(path string, body []byte) *Stream {
	return &Stream{wire: wire{client: c}, path: path, body: body, media: jsonLines}
}

// A mediaType is the form of a stream, as in Content-Type.
type mediaType string

const (
	serverSentEvents mediaType = "text/event-stream"
	jsonLines        mediaType = "application/x-ndjson"
)

// Open sends the request and returns when the header of a successful response has come. It uses
// only the values of ctx; HangUp ends it.
func (s *Stream) Open(ctx context.Context) error {
	resp, err := s.wire.send(ctx, http.MethodPost, s.path, s.body) //nolint:bodyclose // see send
	if err != nil {
		return beside.Unavailable(err)
	}
	if resp.StatusCode != http.StatusOK || !s.media.isOf(resp) {
		return s.wire.refused(resp)
	}
	s.body = nil // images make bodies long, and streams last
	if s.media == jsonLines {
		s.next = lines(resp.Body)
	} else {
		s.next = Events(resp.Body, s.prompt, s.wire.client.dialect)
	}
	return nil
}

func (m mediaType) isOf(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), string(m))
}

// Next returns the data of the next event, which is valid until the next call.
func (s *Stream) Next() ([]byte, error) { return s.next() }

// Release gives the connection to later requests. Call it after the last event of a complete answer, in the
// goroutine that calls Next. It does not wait for the end of the response.
func (s *Stream) Release() { s.wire.release() }

// HangUp closes the connection, whatever state the request is in. When it returns, the kernel has
// closed the connection. After Release it does nothing. Any goroutine may call it, and more than once.
func (s *Stream) HangUp() { s.wire.hangUp() }
