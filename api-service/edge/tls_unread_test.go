package edge_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// writeCertificate writes a certificate for 127.0.0.1 and its key to files.
func writeCertificate(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	lender := httptest.NewTLSServer(http.NotFoundHandler())
	defer lender.Close()
	pair := lender.TLS.Certificates[0]
	secret, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AddCert(lender.Certificate())
	return cert, key, roots
}

// A stalledClient is a connection that reads nothing once it is stalled.
type stalledClient struct {
	net.Conn
	stall  *atomic.Bool
	closed chan struct{}
	once   *sync.Once
}

func (s stalledClient) Read(b []byte) (int, error) {
	if s.stall.Load() {
		<-s.closed
		return 0, net.ErrClosed
	}
	return s.Conn.Read(b)
}

func (s stalledClient) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// secureClient returns a client of HTTP/1.1 or HTTP/2 over TLS whose connections stop reading when
// stall is set.
func secureClient(t *testing.T, roots *x509.CertPool, h2 bool, stall *atomic.Bool) *http.Client {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return stalledClient{conn, stall, make(chan struct{}), &sync.Once{}}, nil
		},
	}
	transport.Protocols.SetHTTP1(!h2)
	transport.Protocols.SetHTTP2(h2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// send sends a request without a body, and returns the body of the answer.
func send(t *testing.T, client *http.Client, method, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return whole(t, resp)
}

// openUnreadTLS begins a stream whose client stops reading, and returns once the edge has stopped
// writing to it.
func openUnreadTLS(t *testing.T, unread, operator *http.Client, url string, stall func()) {
	t.Helper()
	body := strings.TrimSuffix(asking("start m flood x"), "}") + `,"stream":true}`
	ctx, leave := context.WithCancel(context.Background())
	t.Cleanup(leave)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", "unread")
	resp, err := unread.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	stall()
	awaitBlockedWrite(t, func() string { return send(t, operator, http.MethodGet, url+"/v1/streams/unread") })
}

// TestNothingWaitsForATLSClientThatDoesNotRead covers clients over TLS: one leaves its response unread
// while its connection is read, the other reads nothing from its connection. Without a write timeout, a
// stop ends the stream; with one, the client is a slow reader. At the end of each test the edge drains.
func TestNothingWaitsForATLSClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	cert, key, roots := writeCertificate(t)
	for proto, c := range map[string]struct {
		h2   bool
		conn bool // nothing is read from the connection
	}{"HTTP/1.1": {false, true}, "HTTP/2 stream": {true, false}, "HTTP/2 connection": {true, true}} {
		for _, reason := range []string{"user_stop", "drain", "slow_reader"} {
			t.Run(proto+" "+reason, func(t *testing.T) {
				t.Parallel()
				var log logtest.Log
				url, _ := startLogging(t, &log, func(c *edge.Config) {
					unboundedWrites(c)
					c.TLS.Cert, c.TLS.Key = cert, key
					if reason == "slow_reader" {
						c.WriteTimeout = 500 * time.Millisecond
					}
				})
				url = "https" + strings.TrimPrefix(url, "http")
				var stall, none atomic.Bool
				unread, operator := secureClient(t, roots, c.h2, &stall), secureClient(t, roots, c.h2, &none)
				openUnreadTLS(t, unread, operator, url, func() { stall.Store(c.conn) })
				switch reason {
				case "drain":
					return
				case "user_stop":
					send(t, operator, http.MethodDelete, url+"/v1/streams/unread")
				}
				log.Await(t, "stream ended", "hop=api-service", "stream=unread", "reason="+reason)
				polltest.Eventually(t, "no stream is live", func() bool {
					return send(t, operator, http.MethodGet, url+"/v1/streams") == noStreams
				})
			})
		}
	}
}

// TestDeparturesOverTLSAreNoticed: also behind a byte that nobody reads.
func TestDeparturesOverTLSAreNoticed(t *testing.T) {
	t.Parallel()
	cert, key, roots := writeCertificate(t)
	for name, leave := range map[string]func(plain net.Conn, conn *tls.Conn){
		"a close":                  func(_ net.Conn, conn *tls.Conn) { _ = conn.Close() },
		"a stray byte and a close": func(_ net.Conn, conn *tls.Conn) { _, _ = conn.Write([]byte("\r")); _ = conn.Close() },
		"no close_notify":          func(plain net.Conn, conn *tls.Conn) { _, _ = conn.Write([]byte("GET")); _ = plain.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, chat := start(t, func(c *edge.Config) { c.TLS.Cert, c.TLS.Key = cert, key })
			plain, _ := connect(t, url)
			conn := tls.Client(plain, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
			sendText(t, conn, request("start m say x hold x"))
			if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			leave(plain, conn)
			if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.ClientGone {
				t.Errorf("the stream ends with %v", cause)
			}
		})
	}
}
