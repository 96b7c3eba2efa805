package edge_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
)

// heard keeps what is logged of connections.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if line := string(b); strings.Contains(line, "remoteAddr") {
		h.lines = append(h.lines, line)
	}
	return len(b), nil
}

// TestStrangersCannotFillTheLog: port scanners and clients that hang up are no affair of an operator.
func TestStrangersCannotFillTheLog(t *testing.T) {
	var log heard
	edge.LogTo(&log)
	t.Cleanup(func() { edge.LogTo(io.Discard) }) // when the edge has stopped
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
	log.mu.Lock()
	defer log.mu.Unlock()
	if len(log.lines) > 0 {
		t.Errorf("%d lines, such as %q", len(log.lines), log.lines[0])
	}
}
