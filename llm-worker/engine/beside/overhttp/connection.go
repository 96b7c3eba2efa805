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
	// keepAlive is how often an idle connection is probed: a host that vanished without a word is noticed.
	keepAlive  = 15 * time.Second
	maxHeaders = 64 << 10
)

// newClient returns a client whose every request has a connection of its own, which closing stops: that is how these
// servers are told to abort, and their only way to say that an answer is whole is the stream itself. So HTTP/2 and reuse are
// out of the question. Proxies and redirects are, too: the server is beside the worker, and the key is for it alone.
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
	conn   net.Conn           // nil until there is one
	cut    bool
}

// lay returns the context that the request must have. It has the values of ctx, and does not end with it.
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
		conn = t.NetConn() // whose Close does not wait to say goodbye
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = conn
	if w.cut { // before anything was sent
		_ = conn.Close()
	}
}

// hangUp closes the connection, whatever waits for it: a dial, the response's headers, or its next byte. When it returns,
// the kernel has closed the connection.
func (w *wire) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil && !w.cut { // before the client does it in its own time
		_ = w.conn.Close() // it may be closed already
	}
	w.cut = true
	if w.cancel != nil {
		w.cancel()
	}
}

// closeAfter closes body, which ends reading it, unless the returned function is called before.
func closeAfter(body io.Closer, d time.Duration) (undo func()) {
	timer := time.AfterFunc(d, func() { _ = body.Close() })
	return func() { timer.Stop() }
}
