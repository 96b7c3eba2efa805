package edge_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/polltest"
)

// TestRequestThatDribblesTimesOut: a byte now and then does not extend the read timeout.
func TestRequestThatDribblesTimesOut(t *testing.T) {
	t.Parallel()
	const bound = time.Second
	url, _ := start(t, func(c *edge.Config) { c.ReadTimeout = bound })
	post := "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct{ first, more, want string }{
		"nothing": {"", "", ""},
		"header":  {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "x", "HTTP/1.1 408 "},
		"length":  {post + "Content-Length: 9000\r\n\r\n" + strings.Repeat(" ", 8500), " ", "HTTP/1.1 408 "},
		"chunks":  {post + "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", "HTTP/1.1 408 "},
		"later":   {"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "x", "HTTP/1.1 200 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			over := make(chan struct{})
			_ = conn.SetDeadline(time.Now().Add(polltest.Patience))
			fmt.Fprint(conn, c.first)
			go func() {
				defer close(over)
				for tick := time.NewTicker(bound / 20); c.more != ""; <-tick.C {
					if _, err := fmt.Fprint(conn, c.more); err != nil {
						return
					}
				}
			}()
			got, err := io.ReadAll(conn) // up to the end of the connection, clean or not
			_ = conn.Close()
			<-over
			if errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasPrefix(string(got), c.want) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestReadTimeoutBoundsOnlyRequests: neither a long answer nor a pause between two requests counts.
func TestReadTimeoutBoundsOnlyRequests(t *testing.T) {
	t.Parallel()
	url, chat := start(t, func(c *edge.Config) { c.ReadTimeout = time.Second })
	// wait waits until the read timeout of a later connection is over.
	wait := func() {
		_, r := connect(t, url)
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	conn, in := connect(t, url)
	for _, during := range []func(){wait, func() {}} { // the second answer is short
		body := asking("start m hold x say hi end x")
		sendText(t, conn, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		polltest.Receive(t, "the beginning of a stream", chat.begun)
		during()
		chat.release <- struct{}{}
		resp := receive(t, in)
		if got := whole(t, resp); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.StatusCode, got)
		}
		wait()
	}
}
