package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
)

// TestRequestThatDribblesTimesOut: a byte now and then does not extend the read timeout.
func TestRequestThatDribblesTimesOut(t *testing.T) {
	const bound = 300 * time.Millisecond
	url, _ := start(t, func(c *edge.Config) { c.ReadTimeout = bound })
	post := "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct{ first, more, want string }{
		"nothing": {"", "", ""},
		"header":  {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "x", "HTTP/1.1 400 "},
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
			begun, over := time.Now(), make(chan struct{})
			_ = conn.SetDeadline(begun.Add(20 * bound))
			fmt.Fprint(conn, c.first)
			go func() {
				defer close(over)
				for tick := time.NewTicker(bound / 6); c.more != ""; <-tick.C {
					if _, err := fmt.Fprint(conn, c.more); err != nil {
						return
					}
				}
			}()
			got, err := io.ReadAll(conn) // up to the end of the connection, clean or not
			_ = conn.Close()
			<-over
			if took := time.Since(begun); took > 10*bound || !strings.HasPrefix(string(got), c.want) {
				t.Errorf("after %v: %q, %v", took, got, err)
			}
		})
	}
}

// TestReadTimeoutBoundsOnlyRequests: neither a long answer nor a pause between two requests counts.
func TestReadTimeoutBoundsOnlyRequests(t *testing.T) {
	const bound = 100 * time.Millisecond
	url, _ := start(t, func(c *edge.Config) { c.ReadTimeout = bound })
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(conn)
	for range 2 {
		body := asking("start m wait 250ms say hi end x")
		fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := whole(t, resp); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.StatusCode, got)
		}
		time.Sleep(2 * bound) // the pause under test
	}
}
