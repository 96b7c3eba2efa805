package edge_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/metrics"
)

// opened opens a connection, over TLS if secure is not nil, and asks for the health of the edge. It returns an error if the edge
// has closed the connection.
func opened(t *testing.T, addr string, secure *tls.Config) (net.Conn, error) {
	t.Helper()
	plain, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close() })
	_ = plain.SetDeadline(time.Now().Add(polltest.Patience))
	conn := plain
	if secure != nil {
		conn = tls.Client(plain, secure)
	}
	if _, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return nil, err
	}
	answer := make([]byte, 12)
	if _, err = io.ReadFull(conn, answer); err == nil && string(answer) != "HTTP/1.1 200" {
		t.Fatalf("the answer begins with %q", answer)
	}
	return conn, err
}

// TestConnectionsAreBounded: connections over a limit are closed at once, with and without TLS; those that are open are
// served, and a place becomes free when one of them is closed. Trusted proxies are bounded by the limit in all.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	cert, key, roots := writeCertificate(t)
	proxied := func(c *edge.Config) {
		if err := c.Connections.Proxies.Set("127.0.0.0/8"); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(*edge.Config)
		secure *tls.Config
		limit  string
	}{
		"from one address":     {func(c *edge.Config) { c.Connections.PerAddress, c.Connections.Total = 3, 100 }, nil, "address"},
		"in all":               {func(c *edge.Config) { c.Connections.PerAddress, c.Connections.Total = 100, 3 }, nil, "total"},
		"from a proxy":         {func(c *edge.Config) { proxied(c); c.Connections.PerAddress, c.Connections.Total = 1, 3 }, nil, "total"},
		"all are from proxies": {func(c *edge.Config) { c.TrustForwarded, c.Connections.PerAddress, c.Connections.Total = true, 1, 3 }, nil, "total"},
		"over TLS":             {func(c *edge.Config) { c.TLS.Cert, c.TLS.Key, c.Connections.PerAddress = cert, key, 3 }, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}, "address"},
		"over TLS from proxies": {func(c *edge.Config) {
			proxied(c)
			c.TLS.Cert, c.TLS.Key, c.Connections.PerAddress, c.Connections.Total = cert, key, 1, 3
		}, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}, "total"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := metrics.New("api-service")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = m.Close(t.Context()) })
			url, port := startWithAdmin(t, "127.0.0.1:0", func(conf *edge.Config) { c.change(conf); conf.Metrics = m })
			addr := strings.TrimPrefix(url, "http://")
			var open []net.Conn
			for range 3 {
				conn, err := opened(t, addr, c.secure)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, conn)
			}
			for range 3 {
				if _, err := opened(t, addr, c.secure); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
					t.Fatalf("a connection over the limit: %v", err)
				}
			}
			// The admin listener has no part in the limits.
			scrape := whole(t, ask(t, http.MethodGet, "http://127.0.0.1:"+port+"/metrics", ""))
			for _, want := range []string{`whence_connections_open{hop="api-service"} 3`, `whence_connections_refused_total{hop="api-service",limit="` + c.limit + `"} 3`} {
				if !strings.Contains(scrape, want) {
					t.Errorf("the metrics lack %s", want)
				}
			}
			_ = open[0].Close()
			polltest.Eventually(t, "a place becomes free", func() bool {
				_, err := opened(t, addr, c.secure)
				return err == nil
			})
		})
	}
}

// TestForwardedAddressesAreThoseOfTrustedProxies: the X-Forwarded-For of any other client is ignored.
func TestForwardedAddressesAreThoseOfTrustedProxies(t *testing.T) {
	for network, want := range map[string]string{"127.0.0.1": `"192.0.2.7"`, "192.0.2.0/24": `"127.0.0.1:`} {
		url, _ := start(t, func(c *edge.Config) {
			if err := c.Connections.Proxies.Set(network); err != nil {
				t.Fatal(err)
			}
		})
		id := plainStream(t, url, "X-Forwarded-For", "192.0.2.7")
		if story := whole(t, ask(t, http.MethodGet, url+"/v1/streams/"+id, "")); !strings.Contains(story, `"peer":`+want) {
			t.Errorf("--trusted-proxy %s: the peer of the stream is not %s: %s", network, want, story)
		}
	}
}
