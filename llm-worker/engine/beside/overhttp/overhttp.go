// Package overhttp calls a model server over HTTP: requests are JSON, answers are JSON or
// server-sent events.
//
// A connection carries one request at a time; closing it aborts the request. After a complete answer
// whose response has ended as its framing says, it carries another request. After a stop or a fault it is
// closed. Events, headers and messages are bounded. Errors are endings: the reason follows the status if
// there is no answer, PEER_LOST if the response just ends, ENGINE_FAILED if it cannot be parsed.
//
// The package has its own client of HTTP/1.1, because net/http's gives no exact answer to three
// questions: when a stop has closed the connection, whether the request was sent on a connection that the
// server had closed, and whether bytes of an earlier answer are left on a connection (its Transport hands
// such a connection to the next request, which reads them as its response). It parses responses with
// net/http. It uses no proxies and follows no redirects: the server is beside the worker, and only that
// server may see the key.
package overhttp

import (
	"cmp"
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
)

// A Client sends requests to one server.
type Client struct {
	host   string // of requests
	prefix string // of paths
	key    string // sent as a bearer token unless ""
	rank   beside.Rank
	dialer dialer
	idle   pool
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

// New returns a client of the server at base, a valid URL. Close it after the last request.
func New(base, key string) *Client {
	u, err := url.Parse(base)
	if err != nil {
		u = new(url.URL) // requests fail
	}
	c := &Client{host: u.Host, prefix: strings.TrimSuffix(u.EscapedPath(), "/"), key: key}
	c.dialer.dial = (&net.Dialer{KeepAlive: keepAlive}).DialContext
	port := cmp.Or(u.Port(), "80")
	if u.Scheme == "https" {
		port = cmp.Or(u.Port(), "443")
		c.dialer.tls = &tls.Config{ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(1), MinVersion: tls.VersionTLS12}
	}
	c.dialer.addr = net.JoinHostPort(u.Hostname(), port)
	return c
}

// Close closes the connections that no request uses. Those of later answers are closed, too.
func (c *Client) Close() { c.idle.close() }

// Understand makes the client read the server's errors by a dialect. Call it before the first request.
func (c *Client) Understand(dialect beside.Dialect) { c.dialect = dialect }

// Pin makes the client send all requests to one data-parallel rank of the server, and read the load of
// that rank. Call it before the first request.
func (c *Client) Pin(rank beside.Rank) { c.rank = rank }

// DialWith makes the client connect with dial.
func (c *Client) DialWith(dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	c.dialer.dial = dial
}

// Trust makes the client trust the certificates of pool instead of the system's.
func (c *Client) Trust(pool *x509.CertPool) { c.dialer.tls.RootCAs = pool }

// Get reads a JSON object, within the timeout of a health probe. Errors are endings.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, beside.AskTimeout)
	defer cancel()
	return c.call(ctx, http.MethodGet, path, nil, readObject(into))
}

// Post sends a JSON object. It ignores the body of a successful response.
func (c *Client) Post(ctx context.Context, path string, body []byte) error {
	return c.call(ctx, http.MethodPost, path, body, func(io.Reader) error { return nil })
}

// Ask sends a JSON object and reads another one, within the time of ctx. Errors are endings.
func (c *Client) Ask(ctx context.Context, path string, object, into any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, path, body, readObject(into))
}

// readObject returns a function that reads a JSON object from the body of a response.
func readObject(into any) func(body io.Reader) error {
	return func(body io.Reader) error { return json.NewDecoder(io.LimitReader(body, maxEvent)).Decode(into) }
}

// call sends a request, and calls read with the body of a successful response. It ends with ctx.
func (c *Client) call(ctx context.Context, method, path string, body []byte, read func(body io.Reader) error) error {
	w := &wire{client: c}
	undo := context.AfterFunc(ctx, w.hangUp)
	defer undo()
	resp, err := w.send(ctx, method, path, body) //nolint:bodyclose // see send
	switch {
	case err != nil && ctx.Err() != nil:
		return beside.Unavailable(ctx.Err())
	case err != nil:
		return beside.Unavailable(err)
	case resp.StatusCode != http.StatusOK:
		return w.refused(resp)
	}
	if err = read(resp.Body); err == nil {
		w.release()
		return nil
	}
	w.hangUp()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return beside.Broken(fmt.Errorf("%s: %w", path, err))
}
