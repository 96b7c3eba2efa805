package front

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/whence-dev/whence/pkg/rpc/guard/flood"
)

// lineEvery is the time between two log lines about floods.
const lineEvery = 10 * time.Second

// serveHTTP2 makes srv serve HTTP/2. The HTTP/2 of net/http answers SETTINGS, PRIORITY and
// RST_STREAM for as long as a client sends them; here, the connection ends after a flood.
//
//nolint:staticcheck // net/http takes no connection that flood.Meter counts, so its deprecated predecessor serves it
func serveHTTP2(srv *http.Server, c *Config, logger *slog.Logger) error {
	h2 := &http2.Server{
		MaxConcurrentStreams: maxConcurrent,
		IdleTimeout:          idleTimeout,
		ReadIdleTimeout:      c.ClientTimeout / 2, PingTimeout: c.ClientTimeout / 2,
		WriteByteTimeout: c.WriteTimeout,
	}
	if err := http2.ConfigureServer(srv, h2); err != nil {
		return err
	}
	report := flooded(c.Name, logger)
	srv.TLSNextProto[http2.NextProtoTLS] = func(srv *http.Server, conn *tls.Conn, h http.Handler) {
		opts := &http2.ServeConnOpts{Handler: h, BaseConfig: srv}
		if base, ok := h.(interface{ BaseContext() context.Context }); ok {
			opts.Context = base.BaseContext()
		}
		// The library refuses streams beyond maxConcurrent; twice as many are a client that does not listen.
		h2.ServeConn(secureConn{flood.FromConn(conn, 2*maxConcurrent, report), conn}, opts)
	}
	return nil
}

// A secureConn lets the HTTP/2 server see the state of TLS.
type secureConn struct {
	*flood.Conn
	secure *tls.Conn
}

// ConnectionState returns the state of TLS.
func (c secureConn) ConnectionState() tls.ConnectionState { return c.secure.ConnectionState() }

// flooded returns the function that logs the connections that end because of a flood.
func flooded(name string, logger *slog.Logger) flood.Report {
	var mu sync.Mutex // guards last
	var last time.Time
	return func(client net.Addr, err error) {
		mu.Lock()
		defer mu.Unlock()
		if !last.IsZero() && time.Since(last) < lineEvery {
			return
		}
		last = time.Now()
		logger.Warn("an https connection was closed", "hop", name, "client", client.String(), "err", err)
	}
}
