// Package client reads streams of a Whence over HTTP. It is for services whose answers must survive
// a broken connection.
//
// A stream that a Client makes lives on the service, not on a connection. A reader whose connection
// breaks or falls silent reconnects and resumes at its cursor, without losing or repeating text; it
// gives up when its patience is over. Each stream has one ending: who ended it, why, and along
// which path. All errors are *Error.
//
// Callers that speak gRPC get the same endings from chat-service through package pkg/rpc, without
// the replay log.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options configure a Client. The zero value works.
type Options struct {
	Key string // sent as Authorization: Bearer
	// nil means http.DefaultClient. A request that exceeds the client's Timeout counts as a broken
	// connection.
	HTTP *http.Client
	// How long to retry without progress; 0 means DefaultPatience, a negative value means no
	// retries.
	Patience time.Duration
	Silence  time.Duration // time without a byte after which a connection counts as broken; 0 means DefaultSilence
	// OnRetry, if it is not nil, is called after each failure to make or to read a stream, before the
	// wait for the next attempt, by the goroutine that waits. attempt is the number of that attempt: 2
	// after the first failure in a row.
	OnRetry func(attempt int, failure *Error)
}

// Defaults of Options.
const (
	DefaultPatience = time.Minute
	DefaultSilence  = 45 * time.Second // three times the service's interval between comments
)

// A Client makes and resumes streams. It is safe for concurrent use.
type Client struct {
	base    string
	options Options
}

// New returns a client of the service at baseURL, such as "http://127.0.0.1:8080". It ignores a
// trailing "/v1".
func New(baseURL string, o Options) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, invalid("baseURL", "%.64q is not the address of a service, such as http://host:port", baseURL)
	}
	if o.HTTP == nil {
		o.HTTP = http.DefaultClient
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.Silence <= 0 {
		o.Silence = DefaultSilence
	}
	return &Client{base: strings.TrimSuffix(strings.TrimRight(baseURL, "/"), "/v1"), options: o}, nil
}

// Stream makes a stream. If the answer is lost, the request is repeated under the same idempotency
// key, so that it makes only one stream.
func (c *Client) Stream(ctx context.Context, req Request) (*Stream, error) {
	body, err := req.body()
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {req.Key}}
	if req.Key == "" {
		header.Set("Idempotency-Key", rand.Text())
	}
	if req.Leave != "" {
		header.Set("X-Leave", req.Leave)
	}
	answer, err := c.ask(ctx, call{http.MethodPost, "/v1/streams", header, body}, c.options.OnRetry)
	if err != nil {
		return nil, err
	}
	var made struct {
		ID    string
		Token string `json:"read_token"`
	}
	if err := json.Unmarshal(answer, &made); err != nil || made.ID == "" {
		return nil, foreign("the answer has no stream id", err)
	}
	return &Stream{client: c, id: made.ID, token: made.Token}, nil
}

// A Cursor is a position in a stream. The zero value is the beginning.
type Cursor struct {
	Last  string // id of the last event that was read
	Token string // the read token; a client with the Key that made the stream needs none
}

// Resume returns a reader of an existing stream, starting at a cursor. Resume sends nothing until
// the stream is read.
func (c *Client) Resume(id string, from Cursor) *Stream {
	return &Stream{client: c, id: id, token: from.Token, last: from.Last}
}

// stop ends a stream. A stream that has ended already is a success.
func (c *Client) stop(ctx context.Context, id string) error {
	_, err := c.ask(ctx, call{method: http.MethodDelete, path: "/v1/streams/" + url.PathEscape(id)}, nil)
	if errors.Is(err, NotFound) {
		return nil
	}
	return err
}

// A call is a request that may be sent more than once.
type call struct {
	method, path string
	header       http.Header
	body         []byte
}

// ask sends a call, with retries, until it is answered, and returns the body of the answer. onRetry
// may be nil.
func (c *Client) ask(ctx context.Context, what call, onRetry func(int, *Error)) ([]byte, error) {
	p := newPatience(c.options.Patience, onRetry)
	for {
		answer, err := c.once(ctx, what)
		if err == nil {
			return answer, nil
		}
		if err := p.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

func (c *Client) once(ctx context.Context, what call) ([]byte, error) {
	x, err := c.send(ctx, what)
	if err != nil {
		return nil, err
	}
	defer x.close()
	return x.whole()
}

// request returns the request of a call.
func (c *Client) request(ctx context.Context, what call) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, what.method, c.base+what.path, bytes.NewReader(what.body))
	if err != nil {
		return nil, &Error{Reason: Invalid, Cause: err}
	}
	if what.header != nil {
		req.Header = what.header.Clone()
	}
	if c.options.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.options.Key)
	}
	for name, values := range req.Header {
		for _, value := range values {
			if strings.ContainsAny(value, "\r\n\x00") {
				// The transport would refuse it, which would look like a broken connection.
				return nil, invalid(name, "the header %s has a value with a line break or NUL: %.64q", name, value)
			}
		}
	}
	return req, nil
}
