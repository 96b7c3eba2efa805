package recognition

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
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// A client reads what one server tells over HTTP.
type client struct {
	key  string
	http *http.Client
}

// newClient returns a client that, like that of the engines, uses no proxies and follows no redirects: only
// the server may see the key.
func newClient(key string) *client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &client{key: key, http: &http.Client{
		Transport:     &http.Transport{Protocols: protocols, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// A reply is the answer to a request.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// A protocolError is the failure of a request to a server that answers, but not in HTTP/1 over the
// transport of the URL.
type protocolError struct{ cause error }

func (e *protocolError) Error() string {
	return "the server that generates speaks neither HTTP nor the gRPC of vLLM or SGLang: is it the port of a model server?"
}

func (e *protocolError) Unwrap() error { return e.cause }

// get reads what is at a path.
func (c *client) get(ctx context.Context, base, path string, most int64) (*reply, error) {
	return c.call(ctx, http.MethodGet, base+path, nil, most)
}

// post sends a JSON object to a path, and reads the answer.
func (c *client) post(ctx context.Context, base, path string, body []byte) (*reply, error) {
	return c.call(ctx, http.MethodPost, base+path, body, maxBody)
}

// has reports whether the server takes requests at a path.
func (c *client) has(ctx context.Context, base, path string) bool {
	r, err := c.post(ctx, base, path, []byte("{}"))
	return err == nil && r.status != http.StatusNotFound && r.status != http.StatusMethodNotAllowed && r.status != http.StatusNotImplemented
}

func (c *client) call(ctx context.Context, method, url string, sent []byte, most int64) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	if sent != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, explain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, explain(err)
	}
	if strings.Contains(strings.ToUpper(string(body[:min(len(body), maxText)])), "HTTPS") && resp.StatusCode == http.StatusBadRequest {
		return nil, &protocolError{errors.New("an HTTPS server refuses plain HTTP")}
	}
	return &reply{resp.StatusCode, resp.Header, body}, nil
}

// explain says why a request failed, without addresses.
func explain(err error) error {
	var record tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &record) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return errors.New("the server that generates speaks HTTP: its address begins with http://, not https://")
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid):
		return fmt.Errorf("the server that generates has a certificate that this machine does not trust: %w", errors.Unwrap(err))
	}
	failed := beside.Unavailable(err)
	_, network := errors.AsType[*net.OpError](err)
	timeout, ok := errors.AsType[net.Error](err)
	late := ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	_, lookup := errors.AsType[*net.DNSError](err)
	switch {
	case late, lookup, network && strings.Contains(err.Error(), "dial "):
		return errors.New(failed.Text())
	default: // something answers, or closes the connection: a malformed response, or none
		return &protocolError{err}
	}
}

// read reads a JSON object, and reports whether the server has it. What is not there is no error.
func (c *client) read(ctx context.Context, base, path string, into any) bool {
	r, err := c.get(ctx, base, path, maxBody)
	return err == nil && r.status == http.StatusOK && json.Unmarshal(r.body, into) == nil
}

// speaksTLS reports whether the server of a URL accepts a TLS handshake. It sends nothing, so it trusts any
// certificate.
func speaksTLS(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // as the comment says
	conn, err := d.DialContext(ctx, "tcp", hostPort(url))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
