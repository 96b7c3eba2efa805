package front

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/api-service/connlimit"
	"github.com/whence-dev/whence/api-service/form"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// retryAfter is the delay before a retry when the edge could not be reached.
	retryAfter = time.Second
	// lookEvery is the interval at which a blocked write checks whether the edge has reset the
	// connection.
	lookEvery = 100 * time.Millisecond
)

// handler forwards requests to the edge. ctx is done when the edge drains.
func handler(ctx context.Context, c *Config, edge net.Addr, transport http.RoundTripper, logger *slog.Logger) http.Handler {
	target := &url.URL{Scheme: "http", Host: edge.String()}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
			if client := c.behindProxy(r.In); client != "" {
				r.Out.Header.Set("X-Forwarded-For", client)
			}
		},
		FlushInterval: -1, // flush each event at once
		ErrorLog:      log.New(lines{logger}, "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			refuse(ctx, c, w, r, err, logger)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &writer{ResponseWriter: w, rc: http.NewResponseController(w)}
		if r.ProtoMajor == 1 {
			// Without this, an answer that begins before the request was read would truncate the
			// request.
			_ = out.rc.EnableFullDuplex()
			out.timeout = c.WriteTimeout // the server bounds writes over HTTP/2 itself
		}
		defer out.end()
		r.Body = &clientBody{ReadCloser: r.Body, failed: &out.unread}
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { out.follow(info.Conn) }}
		proxy.ServeHTTP(out, r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	})
}

// behindProxy returns the address of the client that a trusted proxy names, or "". The edge takes the last
// address of X-Forwarded-For, so the proxy's own must not follow.
func (c *Config) behindProxy(r *http.Request) string {
	if !c.TrustForwarded {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !c.Proxies.Trusts(net.TCPAddrFromAddrPort(from)) {
			return ""
		}
	}
	return connlimit.Forwarded(r.Header.Values("X-Forwarded-For"))
}

// A clientBody is the body of a client's request.
type clientBody struct {
	io.ReadCloser
	failed *atomic.Bool // set when the body cannot be read
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.failed.Store(true)
	}
	return n, err
}

// refuse answers a request that the edge did not answer.
func refuse(ctx context.Context, c *Config, w http.ResponseWriter, r *http.Request, err error, logger *slog.Logger) {
	if r.Context().Err() != nil {
		return // the client has gone, and the edge logs the ending of its stream
	}
	out := &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(c.Name), RetryAfter: retryAfter,
		Message: c.Name + " cannot be reached behind its TLS listener; try again"}
	if ctx.Err() != nil {
		out.Reason, out.Message = streamerr.Draining, c.Name+" is shutting down"
	}
	if o, ok := w.(*writer); ok && o.unread.Load() {
		out = streamerr.New(streamerr.Invalid, "the body could not be read: it is malformed or too long")
		out.Path = streamerr.NewPath(c.Name)
	}
	id := r.Header.Get("X-Request-Id")
	if !stream.ValidID(id) {
		id = stream.NewID()
	}
	shape := form.Of(r.URL.Path)
	status, body := shape.Refusal(out.Reason.HTTPStatus(), out, id)
	logger.WarnContext(r.Context(), "request refused", "stream", id, "hop", c.Name, "status", status, "reason", out.Reason.String(), "message", out.Message, "err", err)
	w.Header().Set("X-Request-Id", id)
	if shape.IDHeader != "" {
		w.Header().Set(shape.IDHeader, id)
	}
	if out.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(out.RetryAfter.Seconds()))))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the client has gone
}

// A writer writes to one client. A write over HTTP/1 takes at most timeout. A write that waits for
// a client that does not read ends when the edge resets its connection, as the edge does to end
// such a stream.
type writer struct {
	http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration // 0 means no bound
	unread  atomic.Bool   // the body of the request could not be read

	mu     sync.Mutex // guards the following fields
	edge   net.Conn   // to the edge; nil until connected
	client net.Conn   // of a WebSocket, which the server no longer owns; nil otherwise
	timer  *time.Timer
	ended  bool
}

// follow watches the connection to the edge.
func (w *writer) follow(edge net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.edge = edge
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Hour, w.look)
		w.timer.Stop() // no write is blocked
	}
}

// Write implements http.ResponseWriter.
func (w *writer) Write(b []byte) (int, error) {
	defer w.watch()()
	if w.timeout > 0 {
		_ = w.rc.SetWriteDeadline(time.Now().Add(w.timeout)) // fails only if the connection has failed
	}
	return w.ResponseWriter.Write(b)
}

// FlushError implements the interface that http.ResponseController uses.
func (w *writer) FlushError() error {
	defer w.watch()()
	return w.rc.Flush()
}

// Hijack implements http.Hijacker, for WebSockets.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := w.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client = conn
	return hijackedConn{conn, w}, buffer, nil
}

// A hijackedConn is the client's connection of a WebSocket. Its writes are watched like those of a response.
type hijackedConn struct {
	net.Conn
	writer *writer
}

// Write implements net.Conn.
func (h hijackedConn) Write(b []byte) (int, error) {
	defer h.writer.watch()()
	if h.writer.timeout > 0 {
		_ = h.SetWriteDeadline(time.Now().Add(h.writer.timeout)) // fails only if the connection has failed
	}
	return h.Conn.Write(b)
}

// CloseWrite tells the client that the edge has closed the WebSocket.
func (h hijackedConn) CloseWrite() error {
	half, ok := h.Conn.(interface{ CloseWrite() error })
	if !ok {
		return h.Close()
	}
	return half.CloseWrite()
}

// Unwrap gives http.ResponseController access to the methods of the original writer.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// watch watches a write until the caller calls ends.
func (w *writer) watch() (ends func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return func() {}
	}
	w.timer.Reset(lookEvery)
	return func() { w.timer.Stop() }
}

func (w *writer) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
	case !wasReset(w.edge):
		w.timer.Reset(lookEvery)
	case w.client != nil:
		reset(w.client) // makes the write fail, and the read of the client's messages, too
	default:
		_ = w.rc.SetWriteDeadline(time.Now()) // makes the write fail
	}
}

// reset resets a connection, so that none of its data waits for a client that does not read.
func reset(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // else it is closed
	}
	_ = conn.Close()
}

// end stops watching. The server owns the client's connection again.
func (w *writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
