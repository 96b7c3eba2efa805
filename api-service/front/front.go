// Package front terminates TLS before the edge, in the same process, and offers HTTP/2 to clients.
// The edge stays on plain HTTP/1.1, because only there does Hertz notice at once that a client has
// gone.
//
// The front forwards each request over its own loopback connection, and each write of the edge
// becomes one write to the client. When the client closes its connection, the front closes the
// loopback connection, so that the edge notices. When the edge truncates a body, the front
// truncates it too, and when the edge resets the loopback connection of a client that does not
// read, the front resets the client. A request that the edge does not answer gets the usual error
// object, with a reason. The front cannot pass on why a write to a client has failed: to the edge,
// a slow reader looks like a client that has gone.
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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/whence-dev/whence/api-service/connlimit"
	"github.com/whence-dev/whence/internal/certfiles"
	"github.com/whence-dev/whence/internal/descriptors"
	"github.com/whence-dev/whence/pkg/drain"
)

// A Config configures TLS. The zero value disables it.
type Config struct {
	Name          string        // the edge's name in paths and logs
	Cert, Key     string        // PEM files; reloaded after a change
	ReadTimeout   time.Duration // for a request's header
	WriteTimeout  time.Duration // for one write to a client
	ClientTimeout time.Duration // for a client's acknowledgement
	// Connections bounds the connections of clients; nil means no bound.
	Connections *connlimit.Limiter
	// Proxies are the addresses whose X-Forwarded-For has the client's address. TrustForwarded
	// trusts every address.
	Proxies        connlimit.Proxies
	TrustForwarded bool
}

// Flags adds the flags of c that the edge does not have.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Cert, "tls-cert", "", "`file` with the certificate chain (PEM) for TLS and HTTP/2; empty for plain HTTP/1.1")
	fs.StringVar(&c.Key, "tls-key", "", "`file` with the key (PEM) of --tls-cert")
}

// Validate checks c.
func (c *Config) Validate() error {
	if (c.Cert == "") != (c.Key == "") {
		return errors.New("--tls-cert and --tls-key must be given together")
	}
	return nil
}

// On reports whether TLS is enabled.
func (c *Config) On() bool { return c.Cert != "" }

const (
	idleTimeout   = 2 * time.Minute // of a connection between requests
	maxHeader     = 64 << 10
	maxConcurrent = 250 // maximum streams per HTTP/2 connection
	// stopWait bounds the graceful close of connections whose requests have all been answered.
	stopWait = 300 * time.Millisecond
)

// Run runs serve: without TLS on ln, otherwise behind the front on a loopback listener. It returns
// when serve has returned.
func Run(ctx context.Context, c Config, ln net.Listener, logger *slog.Logger, serve func(context.Context, net.Listener) error) error {
	if !c.On() {
		return serve(ctx, ln)
	}
	files := &certfiles.Files{Cert: c.Cert, Key: c.Key, Use: "HTTPS", Log: logger}
	if err := files.Load(); err != nil {
		return fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 1000, IdleConnTimeout: idleTimeout / 2, DisableCompression: true,
		// A client that waits for 100 Continue gets it when the edge asks for the body, and does
		// not get it if the edge refuses the request.
		ExpectContinueTimeout: c.ReadTimeout,
	}
	defer transport.CloseIdleConnections()
	srv := &http.Server{
		Handler: handler(ctx, &c, inner.Addr(), transport, logger),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return files.Get().Cert, nil
		}},
		ReadHeaderTimeout: c.ReadTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(lines{logger}, "", 0),
	}
	if err := serveHTTP2(srv, &c, logger); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx) // a failure of one goroutine ends the other
	group.Go(func() error {
		defer srv.Close() //nolint:errcheck // Serve reports the error of its listener
		if err := serve(ctx, inner); err != nil {
			return err
		}
		waiting, cancel := context.WithTimeout(context.Background(), drain.Goodbye(ctx, stopWait))
		defer cancel()
		_ = srv.Shutdown(waiting) // closes the connections that are still open
		return nil
	})
	group.Go(func() error {
		var accepting net.Listener = listener{descriptors.BriefListener(ln), c.ClientTimeout}
		if c.Connections != nil {
			accepting = c.Connections.Listener(accepting)
		}
		if err := srv.ServeTLS(accepting, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("https server: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// lines receives the log lines of net/http: failed handshakes and departed clients, which do not
// concern an operator.
type lines struct{ log *slog.Logger }

func (l lines) Write(b []byte) (int, error) {
	l.log.Debug("https server", "line", string(b))
	return len(b), nil
}
