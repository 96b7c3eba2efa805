package edge_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
)

// openUnread sends a request on a connection that is never read, and returns once the edge has
// stopped writing to it.
func openUnread(t *testing.T, url, script string, streamed bool, headers string) {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2048) })
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body := asking(script)
	if streamed {
		body = strings.TrimSuffix(body, "}") + `,"stream":true}`
	}
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: unread\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", headers, len(body), body)
	awaitBlockedWrite(t, func() string { return whole(t, ask(t, http.MethodGet, url+"/v1/streams/unread", "")) })
}

// awaitBlockedWrite waits until a stream delivers nothing more while the edge answers requests for
// its story: a write that is blocked gives no signal.
func awaitBlockedWrite(t *testing.T, story func() string) {
	t.Helper()
	before, same := "", 0
	polltest.Eventually(t, "the edge stops writing", func() bool {
		_, tokens, _ := strings.Cut(story(), `"tokens":`)
		tokens, _, _ = strings.Cut(tokens, "}")
		if same++; tokens != before || tokens == "" {
			before, same = tokens, 0
		}
		return same == 20
	})
}

// noStreams is the list of the live streams if there are none.
const noStreams = `{"streams":[]}`

// unboundedWrites lifts the write timeout, so that only the cause under test ends a write to a
// client that does not read.
func unboundedWrites(c *edge.Config) {
	c.WriteTimeout, c.ClientTimeout, c.MaxUnsent = time.Hour, time.Hour, 4096
	c.Grace = 50 * time.Millisecond
}

func TestNothingWaitsForAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, headers string
		streamed        bool
		stop            func(t *testing.T, url string)
		reason          string
	}{
		"stop":                    {"start m flood x", "", true, stopUnread, "user_stop"},
		"stop of a kept stream":   {"start m pour 200 wait 1h end x", "X-Leave: detach\r\n", true, stopUnread, "user_stop"},
		"stop of a whole answer":  {"start m pour 2000 end x", "", false, stopUnread, "completed"},
		"deadline":                {"start m flood x", "X-Request-Timeout: 1\r\n", true, nil, "deadline"},
		"drain":                   {"start m flood x", "", true, func(*testing.T, string) {}, ""},
		"drain of a kept stream":  {"start m pour 200 wait 1h end x", "X-Leave: detach\r\n", true, func(*testing.T, string) {}, ""},
		"drain of a whole answer": {"start m pour 2000 end x", "", false, func(*testing.T, string) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logtest.Log
			url, _ := startLogging(t, &log, unboundedWrites) // the edge drains at the end of the test
			openUnread(t, url, c.script, c.streamed, c.headers)
			if c.stop != nil {
				c.stop(t, url)
			}
			if c.reason == "" {
				return
			}
			log.Await(t, "stream ended", "hop=api-service", "stream=unread", "reason="+c.reason)
			polltest.Eventually(t, "no stream is live", func() bool {
				return whole(t, ask(t, http.MethodGet, url+"/v1/streams", "")) == noStreams
			})
		})
	}
}

func stopUnread(t *testing.T, url string) {
	t.Helper()
	resp := ask(t, http.MethodDelete, url+"/v1/streams/unread", "")
	if got := whole(t, resp); resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp.StatusCode, got)
	}
}

// TestUnreadStreamDelaysNoOtherStream: the client that asked for a kept stream does not read it,
// but another reader gets all of it.
func TestUnreadStreamDelaysNoOtherStream(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"it stays":       "start m pour 200 end x",
		"it is given up": "start m pour 2000 end x",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logtest.Log
			url, _ := startLogging(t, &log, unboundedWrites)
			openUnread(t, url, script, true, "X-Leave: detach\r\n")
			all, text := events(t, ask(t, http.MethodGet, url+"/v1/streams/unread/events", ""))
			if len(text) < 200_000 || all[len(all)-1].name != "ending" {
				t.Errorf("the other reader has %d bytes, and %s at last", len(text), all[len(all)-1].name)
			}
			if len(text) > maxUnread {
				log.Await(t, "reader left", "stream=unread", "reason=slow_reader")
			}
		})
	}
}

// maxUnread is more than the edge and the kernel buffer for a client that does not read.
const maxUnread = 1 << 20

// TestReadersThatDoNotReadDoNotHoldADrainUp: a drain ends the readers of a stream that has ended.
func TestReadersThatDoNotReadDoNotHoldADrainUp(t *testing.T) {
	url, _ := start(t, unboundedWrites)
	m := makeStream(t, url, "start m pour 3000 end x")
	_, _ = events(t, ask(t, http.MethodGet, url+m.Events, "")) // the stream has ended
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2048) })
	}}
	for range 3 {
		conn, err := dialer.DialContext(context.Background(), "tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", m.Events)
		if _, err := conn.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
}
