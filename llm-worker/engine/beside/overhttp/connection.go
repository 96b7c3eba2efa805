package overhttp

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// keepAlive is the interval of TCP keep-alive probes. They detect a host that vanished without
	// closing its connections.
	keepAlive  = 15 * time.Second
	maxHeaders = 64 << 10
)

// newClient returns a client that opens one connection per request. Closing the connection is the
// only way to make these servers abort, and the end of the stream is their only way to say that an
// answer is complete; so the client uses neither HTTP/2 nor connection reuse. It uses no proxies
// and follows no redirects: the server is beside the worker, and only that server may see the key.
func newClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
			TLSHandshakeTimeout:    dialTimeout,
			Protocols:              protocols,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeaders,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A wire is the connection of one request.
type wire struct {
	mu     sync.Mutex         // guards the following fields
	cancel context.CancelFunc // nil until lay
	conn   net.Conn           // nil until connected
	cut    bool
}

// lay returns the context for the request. It has the values of ctx, but does not end with ctx.
func (w *wire) lay(ctx context.Context) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if w.cut {
		w.cancel()
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { w.take(got.Conn) }})
}

func (w *wire) take(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn() // Close of the TCP connection does not wait to send TLS's close-notify
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = conn
	if w.cut { // before the request was sent
		_ = conn.Close()
	}
}

// hangUp closes the connection, whether it is dialing, waiting for the response's header, or
// reading. When it returns, the kernel has closed the connection.
func (w *wire) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil && !w.cut { // at once: the HTTP client would close it later
		_ = w.conn.Close() // the connection may be closed already
	}
	w.cut = true
	if w.cancel != nil {
		w.cancel()
	}
}

// closeAfter closes body after d, which ends a blocked read, unless the caller calls undo first.
func closeAfter(body io.Closer, d time.Duration) (undo func()) {
	timer := time.AfterFunc(d, func() { _ = body.Close() })
	return func() { timer.Stop() }
}
