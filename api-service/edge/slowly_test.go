package edge_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// readSlowly sends a request on a connection of its own with a small buffer, and reads the answer
// in small pieces. Between two pieces it makes a request on another connection, while the edge's
// writes to the slow reader are blocked.
func readSlowly(t *testing.T, url, request string) string {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for buf := make([]byte, 8000); ; {
		_ = whole(t, ask(t, http.MethodGet, url+"/v1/streams", ""))
		n, err := conn.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil {
			break
		}
	}
	for _, c := range changing {
		all = regexp.MustCompile(c.pattern).ReplaceAll(all, []byte(c.with))
	}
	return string(all)
}

// TestSlowReaderGetsTheSameBytes: the bytes that the client has not taken at once arrive later,
// complete and in order.
func TestSlowReaderGetsTheSameBytes(t *testing.T) {
	url, _ := start(t, unboundedWrites)
	for name, c := range map[string]struct{ script, headers string }{
		"plain": {"start m say first pour 600 say last end x", ""},
		"kept":  {"start m say first pour 150 say last end x", "X-Leave: detach\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.TrimSuffix(asking(c.script), "}") + `,"stream":true}`
			request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", c.headers, len(body), body)
			with := func(id string) string {
				return strings.Replace(request, "Content-Type", "X-Request-Id: "+id+"\r\nContent-Type", 1)
			}
			fast := exchangeRaw(t, url, with(name+"-a"))
			slow := readSlowly(t, url, with(name+"-b"))
			if slow = strings.ReplaceAll(slow, name+"-b", name+"-a"); slow != fast || !strings.HasSuffix(slow, "data: [DONE]\n\n\r\n0\r\n\r\n") {
				t.Errorf("%d bytes that end with %.200q, want %d", len(slow), slow[max(0, len(slow)-200):], len(fast))
			}
		})
	}
}
