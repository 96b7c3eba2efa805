package edge_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/logtest"
)

// libraries is the log of the libraries, shared by all tests: their output cannot be redirected
// while they run.
var libraries logtest.Log

// TestStrangersCannotFillTheLog: port scanners and clients that hang up must not concern an
// operator.
func TestStrangersCannotFillTheLog(t *testing.T) {
	url, _ := start(t, nil)
	for _, says := range []string{"\x16\x03\x01\r\n\r\n", "GET / HTT", "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"} {
		for range 10 {
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, says)
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn) // until the edge has closed it
			_ = conn.Close()
		}
	}
	if lines := libraries.Lines("remoteAddr="); len(lines) > 0 {
		t.Errorf("%d lines, such as %q", len(lines), lines[0])
	}
}
