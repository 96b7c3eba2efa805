// Package overhttp calls a model server over HTTP: requests are JSON, answers are JSON or
// server-sent events.
//
// Each request has its own connection; closing it aborts the request. Events, headers and messages
// are bounded. Errors are endings: the reason follows the status if there is no answer, PEER_LOST
// if the response just ends, ENGINE_FAILED if it cannot be parsed.
package overhttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
)

// A Client sends requests to one server.
type Client struct {
	base string // prefix of URLs
	key  string // sent as a bearer token unless ""
	rank beside.Rank
	http *http.Client
	// dialect reads the server's errors; it may be nil.
	dialect beside.Dialect
}

// Validate checks an address and a key. Its errors name the flags.
func Validate(upstream, key string) error {
	u, err := url.Parse(upstream)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("--upstream is %.64q; it must be a URL such as http://127.0.0.1:8000", upstream)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("--upstream must be a host, a port and optionally a path; a key belongs in --upstream-key")
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("--upstream-key contains a space or a character that is not allowed in an HTTP header")
	}
	return nil
}

// New returns a client of the server at base, a URL.
func New(base, key string) *Client {
	return &Client{base: strings.TrimSuffix(base, "/"), key: key, http: newClient()}
}

// Understand makes the client read the server's errors by a dialect. Call it before the first request.
func (c *Client) Understand(dialect beside.Dialect) { c.dialect = dialect }

// Pin makes the client send all requests to one data-parallel rank of the server, and read the load of
// that rank. Call it before the first request.
func (c *Client) Pin(rank beside.Rank) { c.rank = rank }

// DialWith makes the client connect with dial.
func (c *Client) DialWith(dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	c.http.Transport.(*http.Transport).DialContext = dial //nolint:forcetypeassert // newClient's
}

// Trust makes the client trust the certificates of pool instead of the system's.
func (c *Client) Trust(pool *x509.CertPool) {
	c.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool} //nolint:forcetypeassert // newClient's
}

// ask sends a request.
func (c *Client) ask(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, reader)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if c.rank != (beside.Rank{}) {
		req.Header.Set("X-Data-Parallel-Rank", c.rank.String()) // of vLLM and SGLang
	}
	if id := stream.ID(ctx); id != "" {
		req.Header.Set("X-Request-Id", id) // vLLM writes it to its log and uses it in its ids
	}
	ledger.Parent(ctx).Each(req.Header.Set)
	return c.http.Do(req)
}

// Get reads a JSON object, within the timeout of a health probe. Errors are endings.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, beside.AskTimeout)
	defer cancel()
	return c.call(ctx, http.MethodGet, path, nil, into)
}

// Post sends a JSON object. It ignores the body of a successful response.
func (c *Client) Post(ctx context.Context, path string, body []byte) error {
	return c.call(ctx, http.MethodPost, path, body, nil)
}

// Ask sends a JSON object and reads another one, within the time of ctx. Errors are endings.
func (c *Client) Ask(ctx context.Context, path string, object, into any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, path, body, into)
}

func (c *Client) call(ctx context.Context, method, path string, body []byte, into any) error {
	resp, err := c.ask(ctx, method, path, body)
	if err != nil {
		return beside.Unavailable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return c.refused(resp)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxEvent)).Decode(into); err != nil {
		return beside.Broken(fmt.Errorf("%s: %w", path, err))
	}
	return nil
}
