package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/polltest"
)

// overLink makes the edge reach its chat-service over a link.
func overLink(c *edge.Config) { c.Link, c.MaxStreams = true, 100 }

// request returns the text of a request for a stream.
func request(script string, headers ...string) string {
	body := strings.TrimSuffix(asking(script), "}") + `,"stream":true}`
	return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
		len(body), strings.Join(append(headers, ""), "\r\n"), body)
}

// sendText writes text to a connection.
func sendText(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// receive reads the head of the next response.
func receive(t *testing.T, r *bufio.Reader) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// handlers returns the number of goroutines of the edge's handlers.
func handlers() int {
	buf := make([]byte, 8<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "(*Edge).answerCall")
}

// TestOpenStreamsKeepNoHandler checks that the handlers of open streams over a link return. The
// streams continue, and their connections serve the next requests.
func TestOpenStreamsKeepNoHandler(t *testing.T) {
	const streams = 20
	url, chat := start(t, overLink)
	var conns []net.Conn
	var readers []*bufio.Reader
	for i := range streams {
		conn, r := connect(t, url)
		sendText(t, conn, request("start m say one hold x end x", fmt.Sprintf("X-Request-Id: s%d", i)))
		conns, readers = append(conns, conn), append(readers, r)
	}
	bodies := make([]*bufio.Reader, streams)
	for i, r := range readers {
		resp := receive(t, r)
		bodies[i] = bufio.NewReader(resp.Body)
		for line := ""; !strings.Contains(line, `"one"`); {
			var err error
			if line, err = bodies[i].ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		if id := resp.Header.Get("X-Request-Id"); id != fmt.Sprintf("s%d", i) {
			t.Errorf("the stream s%d has the id %q", i, id)
		}
	}
	polltest.Eventually(t, "no handler waits for a stream", func() bool { return handlers() == 0 })
	close(chat.release)
	for i, body := range bodies {
		if rest, err := io.ReadAll(body); err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
			t.Errorf("s%d ends with %q, %v", i, rest, err)
		}
		sendText(t, conns[i], request("start m say again end x"))
		if got := whole(t, receive(t, readers[i])); !strings.Contains(got, "again") || !strings.HasSuffix(got, "data: [DONE]\n\n") {
			t.Errorf("the second answer on the connection of s%d is %q", i, got)
		}
	}
}

// TestConnectionIsClosedBehindTheLastAnswer covers requests of HTTP/1.0, and requests with
// Connection: close.
func TestConnectionIsClosedBehindTheLastAnswer(t *testing.T) {
	url, _ := start(t, overLink)
	for _, text := range []string{
		request("start m say one wait 20ms end x", "Connection: close"),
		request("start m wait 20ms fail unavailable", "Connection: close"),
		strings.Replace(request("start m say one wait 20ms end x"), "HTTP/1.1", "HTTP/1.0", 1),
		strings.Replace(request("wait 20ms fail invalid"), "HTTP/1.1", "HTTP/1.0", 1),
	} {
		conn, r := connect(t, url)
		sendText(t, conn, text)
		if got, err := io.ReadAll(r); err != nil || !strings.HasPrefix(string(got), "HTTP/1.") {
			t.Errorf("%.60q is answered with %q, %v", text, got, err)
		}
	}
}

// TestNextRequestMayUseTheIDAgain: a stream has ended before the next request of its connection
// begins, so both the id and the place among the live streams are free.
func TestNextRequestMayUseTheIDAgain(t *testing.T) {
	const requests = 30
	url, _ := start(t, func(c *edge.Config) { c.Link, c.MaxStreams = true, 1 })
	conn, r := connect(t, url)
	sendText(t, conn, strings.Repeat(request("start m wait 1ms say one end x", "X-Request-Id: same"), requests))
	for i := range requests {
		if got := whole(t, receive(t, r)); !strings.Contains(got, "one") {
			t.Fatalf("answer %d is %q", i, got)
		}
	}
}
