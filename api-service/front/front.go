// Package front terminates TLS before the edge, in the same process, and speaks HTTP/2 to clients that do: Hertz notices at once
// that a client has gone only on plain connections of HTTP/1.1.
//
// A request is passed on over a loopback connection of its own, and each write of the edge is one write to the client. When the
// client goes, that connection is closed, which is how the edge hears of it; when the edge cuts a body, so does the front.
// What the front cannot pass on is why a client could not be written to: to the edge a slow reader has gone.
package front

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// A Config says how TLS is spoken. The zero value is not at all.
type Config struct {
	Cert, Key     string        // PEM files; read again when they change
	ReadTimeout   time.Duration // for a request's header
	WriteTimeout  time.Duration // for one write to a client
	ClientTimeout time.Duration // for a client's acknowledgement
}

// Flags adds the flags of c that are not the edge's, too.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Cert, "tls-cert", "", "`file` with the certificate chain (PEM) for TLS and HTTP/2; empty for plain HTTP/1.1")
	fs.StringVar(&c.Key, "tls-key", "", "`file` with the key (PEM) of --tls-cert")
}

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	if (c.Cert == "") != (c.Key == "") {
		return errors.New("--tls-cert and --tls-key must be given together")
	}
	return nil
}

// On reports whether TLS is spoken.
func (c *Config) On() bool { return c.Cert != "" }

const (
	idleTimeout   = 2 * time.Minute // of a kept connection between requests
	maxHeader     = 64 << 10
	maxConcurrent = 250 // streams on one connection of HTTP/2
	// stopWait bounds the goodbye of connections whose requests have all been answered.
	stopWait = time.Second
)

// Run has serve answer on ln: itself if there is no TLS, else behind it, on a loopback listener. It returns when serve has.
func Run(ctx context.Context, c Config, ln net.Listener, logger *slog.Logger, serve func(context.Context, net.Listener) error) error {
	if !c.On() {
		return serve(ctx, ln)
	}
	pair := &pair{config: &c}
	if _, err := pair.get(nil); err != nil {
		return err
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1000, IdleConnTimeout: idleTimeout / 2, DisableCompression: true}
	defer transport.CloseIdleConnections()
	srv := &http.Server{
		Handler:           handler(&c, inner.Addr(), transport, logger),
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get},
		ReadHeaderTimeout: c.ReadTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxConcurrent,
			SendPingTimeout:      c.ClientTimeout / 2, PingTimeout: c.ClientTimeout / 2,
			WriteByteTimeout: c.WriteTimeout,
		},
		ErrorLog: log.New(lines{logger}, "", 0),
	}
	group, ctx := errgroup.WithContext(ctx) // one that fails takes the other with it
	group.Go(func() error {
		defer srv.Close() //nolint:errcheck // its listener's error would be Serve's
		if err := serve(ctx, inner); err != nil {
			return err
		}
		waiting, cancel := context.WithTimeout(context.Background(), stopWait)
		defer cancel()
		_ = srv.Shutdown(waiting) // who does not say goodbye is closed
		return nil
	})
	group.Go(func() error {
		if err := srv.ServeTLS(listener{ln, c.ClientTimeout}, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("https server: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// handler passes requests on to the edge.
func handler(c *Config, edge net.Addr, transport http.RoundTripper, logger *slog.Logger) http.Handler {
	target := &url.URL{Scheme: "http", Host: edge.String()}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		FlushInterval: -1, // each event when it comes
		ErrorLog:      log.New(lines{logger}, "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			logger.DebugContext(r.Context(), "request not passed on", "err", err) // its client has gone, or the edge is draining
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex() // else an answer that begins before the request was read cuts the request off
			w = bounded{w, rc, c.WriteTimeout}
		}
		proxy.ServeHTTP(w, r)
	})
}

// bounded is a ResponseWriter whose writes take so long at most. HTTP/2 has its own bound.
type bounded struct {
	http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
}

func (w bounded) Write(b []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.timeout)) // fails only where the connection has
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush.
func (w bounded) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A pair is the certificate and its key, as the files have them.
type pair struct {
	config *Config

	mu      sync.Mutex // guards the following fields
	cert    *tls.Certificate
	read    time.Time // when cert was
	checked time.Time
}

// checkEvery is how often the files are looked at, if there are clients.
const checkEvery = time.Second

// get is tls.Config.GetCertificate. Files that cannot be read, or do not belong together, leave the old ones in place.
func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.cert != nil && now.Sub(p.checked) < checkEvery {
		return p.cert, nil
	}
	p.checked = now
	if p.cert != nil && !p.changed() {
		return p.cert, nil
	}
	cert, err := tls.LoadX509KeyPair(p.config.Cert, p.config.Key)
	switch {
	case err == nil:
		p.cert, p.read = &cert, now
	case p.cert == nil:
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	return p.cert, nil
}

// changed reports whether a file is newer than what was read of it.
func (p *pair) changed() bool {
	for _, file := range []string{p.config.Cert, p.config.Key} {
		if info, err := os.Stat(file); err == nil && info.ModTime().After(p.read) {
			return true
		}
	}
	return false
}

// lines takes what net/http logs: handshakes that failed and clients that went, which are no affair of an operator.
type lines struct{ log *slog.Logger }

func (l lines) Write(b []byte) (int, error) {
	l.log.Debug("https server", "line", string(b))
	return len(b), nil
}
