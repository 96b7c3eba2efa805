package overhttp

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// A Stream is a request whose answer is a stream of events, or of lines.
type Stream struct {
	wire   wire
	path   string
	body   []byte
	prompt int // tokens
	media  mediaType

	source source
	failed error // the ending that Tokens returns next
}

// A source reads the events of an answer.
type source interface {
	next() ([]byte, error)
	ready() bool
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
	s.Read(resp.Body)
	return nil
}

func (m mediaType) isOf(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), string(m))
}

// Read makes r the answer, for tests without a server.
func (s *Stream) Read(r io.Reader) {
	b := bufio.NewReaderSize(r, readBuffer)
	if s.media == jsonLines {
		s.source = &lines{b}
	} else {
		s.source = newEvents(b, s.prompt, s.wire.client.dialect)
	}
}

// Next returns the data of the next event, which is valid until the next call.
func (s *Stream) Next() ([]byte, error) { return s.source.next() }

// Tokens returns the tokens of the events that have come, of at least one, so that a worker that lags behind
// its server sends few messages; and the ending. read reads one event with Next. After the ending, which has
// to be that of a complete answer, the connection is given to later requests. Tokens does not wait for the end
// of the response.
func (s *Stream) Tokens(read func() ([]uint32, *llmv1.End, error)) ([]uint32, *llmv1.End, error) {
	if s.failed != nil {
		return nil, nil, s.failed
	}
	ids, end, err := read()
	for err == nil && end == nil && s.source.ready() {
		var more []uint32
		more, end, err = read()
		ids = append(slices.Clip(ids), more...)
	}
	if end != nil {
		s.wire.release()
	}
	if err != nil && len(ids) > 0 { // the tokens come first
		s.failed, err = err, nil
	}
	return ids, end, err
}

// HangUp closes the connection, whatever state the request is in. When it returns, the kernel has
// closed the connection. After the ending it does nothing. Any goroutine may call it, and more than once.
func (s *Stream) HangUp() { s.wire.hangUp() }
