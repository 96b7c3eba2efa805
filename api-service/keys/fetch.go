package keys

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	fetchTimeout = 5 * time.Second
	maxDocument  = 1 << 20 // bytes of metadata, or of keys
	maxHeaders   = 64 << 10
	maxRedirects = 5
)

// A documentFetcher fetches the keys of issuers. Close ends all fetches.
type documentFetcher struct {
	log  *slog.Logger
	ctx  context.Context //nolint:containedctx // of the fetches, which outlive the requests that cause them
	stop context.CancelFunc
	http *http.Transport

	mu      sync.Mutex // guards closed, and running against it
	closed  bool
	running sync.WaitGroup
}

// newDocumentFetcher returns a documentFetcher.
func newDocumentFetcher(log *slog.Logger) *documentFetcher {
	f := &documentFetcher{log: log, http: http.DefaultTransport.(*http.Transport).Clone()}
	f.http.DisableKeepAlives = true // fetches are minutes apart
	f.http.MaxResponseHeaderBytes = maxHeaders
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Close ends the fetches, and waits for them.
func (f *documentFetcher) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.stop()
	f.running.Wait()
}

// enter begins a part of a fetch, which ends with running.Done. It returns false after Close.
func (f *documentFetcher) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.running.Add(1)
	}
	return !f.closed
}

// client returns the HTTP client for the documents behind a URL of the configuration. Only a
// configured http:// URL, which is always on this machine, may lead to http:// URLs. Otherwise, any
// local server could supply the keys of a remote issuer.
func (f *documentFetcher) client(configured string) *http.Client {
	local := strings.HasPrefix(configured, "http:")
	return &http.Client{
		Transport: fetchTransport(func(req *http.Request) (*http.Response, error) {
			if req.URL.Scheme != "https" && !local {
				return nil, fmt.Errorf("%.256q must begin with https://, because the issuer's configured URL does", req.URL)
			}
			return f.get(req)
		}),
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch {
			case len(via) > maxRedirects:
				return fmt.Errorf("%s leads to more than %d redirects", via[0].URL, maxRedirects)
			case req.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https":
				return fmt.Errorf("%s redirects from https:// to http://", via[len(via)-1].URL)
			}
			return nil
		},
	}
}

// get answers a GET with a whole document.
func (f *documentFetcher) get(req *http.Request) (*http.Response, error) {
	if !f.enter() {
		return nil, context.Canceled
	}
	defer f.running.Done()
	ctx, cancel := context.WithTimeout(req.Context(), fetchTimeout)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	if _, err := checkURL(req.URL.String()); err != nil { // a URL from the metadata or from a redirect
		return nil, err
	}
	resp, err := f.http.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end, or too long
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxDocument:
		return nil, fmt.Errorf("%s has more than %d bytes", req.URL, maxDocument)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// A fetchTransport adapts a function to http.RoundTripper.
type fetchTransport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t fetchTransport) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }
