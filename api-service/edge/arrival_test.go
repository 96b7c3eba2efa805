package edge_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/polltest"
)

// connect opens a connection on which every wait is bounded.
func connect(t *testing.T, url string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(polltest.Patience))
	return conn, bufio.NewReader(conn)
}

// TestLargeBodyIsRefusedWhenItIsAnnounced checks on every route that the edge neither asks for the
// body nor waits for it.
func TestLargeBodyIsRefusedWhenItIsAnnounced(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.ReadTimeout = time.Hour })
	for _, length := range []string{"10001", "67108864", "1000000000000"} {
		for _, also := range []string{"", "Expect: 100-continue\r\n", "Content-Type: multipart/form-data; boundary=x\r\n"} {
			for _, route := range []string{"POST /v1/chat/completions", "POST /v1/streams/x/seen", "GET /healthz", "DELETE /v1/streams/x", "POST /nowhere"} {
				conn, r := connect(t, url)
				for range 2 { // also on a connection that has served a request before
					if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
						t.Fatal(err)
					}
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						t.Fatal(err)
					}
					_ = whole(t, resp)
				}
				if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n%s\r\n", route, length, also); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatalf("%s, %s, %q: %v", route, length, also, err)
				}
				if body := whole(t, resp); resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close || !strings.Contains(body, `"reason":"invalid"`) {
					t.Errorf("%s, %s, %q: %d %v %s", route, length, also, resp.StatusCode, resp.Header, body)
				}
				_ = conn.Close()
			}
		}
	}
}

// TestClientThatSendsALargeBodyReadsTheRefusal checks that a client that sends the whole body first reads
// the response, and not a reset.
func TestClientThatSendsALargeBodyReadsTheRefusal(t *testing.T) {
	url, _ := start(t, nil)
	for what, c := range map[string]struct {
		head, rest string
		want       int
	}{
		"body":   {fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", 8<<20), strings.Repeat("x", 8<<20), http.StatusRequestEntityTooLarge},
		"header": {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: ", strings.Repeat("x", 1<<20), http.StatusRequestHeaderFieldsTooLarge},
	} {
		conn, r := connect(t, url)
		if _, err := io.WriteString(conn, c.head+c.rest); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if body := whole(t, resp); resp.StatusCode != c.want {
			t.Errorf("%s: %d %s", what, resp.StatusCode, body)
		}
	}
}

// TestHeadersAreBounded checks that a request just below the bound is answered, and that a request
// just above it gets 431.
func TestHeadersAreBounded(t *testing.T) {
	url, _ := start(t, nil)
	for size, want := range map[int]int{63 << 10: http.StatusOK, 65 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		conn, r := connect(t, url)
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: "+strings.Repeat("x", size)+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(size, err)
		}
		if body := whole(t, resp); resp.StatusCode != want {
			t.Errorf("a header of %d bytes: %d %s", size, resp.StatusCode, body)
		}
	}
}

// TestLargeBodyIsRefusedBehindTLS checks that the edge with TLS neither asks for the
// body nor waits for it.
func TestLargeBodyIsRefusedBehindTLS(t *testing.T) {
	like := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	like.Close()
	key, err := x509.MarshalPKCS8PrivateKey(like.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"cert": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: like.Certificate().Raw}),
		"key":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(like.Certificate())
	url, _ := start(t, func(c *edge.Config) {
		c.ReadTimeout, c.TLS.Cert, c.TLS.Key = time.Hour, filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	})
	for length, want := range map[int]int{67108864: http.StatusRequestEntityTooLarge, len(asking("start m end x")): http.StatusOK} {
		for _, also := range []string{"", "Expect: 100-continue\r\n"} {
			plain, _ := connect(t, url)
			conn := tls.Client(plain, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
			r := bufio.NewReader(conn)
			if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", length, also); err != nil {
				t.Fatal(err)
			}
			if want == http.StatusOK && also == "" {
				if _, err := io.WriteString(conn, asking("start m end x")); err != nil {
					t.Fatal(err)
				}
			}
			resp, err := http.ReadResponse(r, nil)
			if err == nil && resp.StatusCode == http.StatusContinue && want == http.StatusOK {
				if _, err := io.WriteString(conn, asking("start m end x")); err != nil {
					t.Fatal(err)
				}
				for err == nil && resp.StatusCode == http.StatusContinue { // it may be repeated
					resp, err = http.ReadResponse(r, nil)
				}
			}
			if err != nil {
				t.Fatalf("%d, %q: %v", length, also, err)
			}
			if body := whole(t, resp); resp.StatusCode != want {
				t.Errorf("%d, %q: %d %s", length, also, resp.StatusCode, body)
			}
			_ = conn.Close()
		}
	}
}
