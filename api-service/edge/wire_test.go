package edge_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/polltest"
)

var updateWire = flag.Bool("update-wire", false, "write testdata/wire.txt")

// changing matches the parts that differ between runs: dates, times, tokens, epochs and random ids.
var changing = []struct{ pattern, with string }{
	{`Date: [^\r]+`, "Date: D"},
	{`"created":[0-9]+`, `"created":0`},
	{`"e2e_latency":[-+.e0-9]+`, `"e2e_latency":0`},
	{`[0-9a-f]+\r\n(data: [^\n]*"e2e_latency":)`, "N\r\n$1"}, // the number of digits changes lengths
	{`(?s)Content-Length: [0-9]+(\r\n.*"e2e_latency":)`, "Content-Length: N$1"},
	{`X-Read-Token: [^\r]+`, "X-Read-Token: T"},
	{`id: [a-z0-9]{10}\.`, "id: epoch."},
	{`(d\r\n: keep-alive\n\r\n)+`, "d\r\n: keep-alive\n\r\n"},
}

// exchangeRaw sends one request on a connection of its own, and returns all bytes of the answer.
func exchangeRaw(t *testing.T, url, request string) string {
	t.Helper()
	return exchangePausing(t, url, request, func() {})
}

// exchangePausing is exchangeRaw. It calls resume when it has read a keep-alive comment.
func exchangePausing(t *testing.T, url, request string, resume func()) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(polltest.Patience))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	var answer []byte
	for buf, paused := make([]byte, 4096), false; ; {
		n, err := conn.Read(buf)
		if answer = append(answer, buf[:n]...); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v after %q", err, answer)
		}
		if !paused && bytes.Contains(answer, []byte(": keep-alive")) {
			paused = true
			resume()
		}
	}
	for _, c := range changing {
		answer = regexp.MustCompile(c.pattern).ReplaceAll(answer, []byte(c.with))
	}
	return string(answer)
}

// TestBytesOfAnswers compares all bytes that clients get with the bytes of earlier versions:
// headers, framing and events.
func TestBytesOfAnswers(t *testing.T) {
	t.Parallel()
	url, _ := start(t, nil)
	silent, silentChat := start(t, func(c *edge.Config) { c.HeadersAfter = 20 * time.Millisecond })
	pausing, pausingChat := start(t, func(c *edge.Config) { c.KeepAlive = time.Second })
	const answer = `start m say one say tw\"o\u003c\u00e9 say three `
	body := func(script, more string) string {
		return `{"model":"m","messages":[{"role":"user","content":"` + script + `"}]` + more + `}`
	}
	post := func(path, headers, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", path, headers, len(body), body)
	}
	chat := func(id, headers, body string) string {
		return post("/v1/chat/completions", "X-Request-Id: "+id+"\r\n"+headers, body)
	}
	const streamed = `,"stream":true`
	long := strings.Repeat("x", 5000)
	var got strings.Builder
	for _, c := range []struct{ name, request string }{
		{"a stream", chat("plain", "", body(answer+"end x", streamed))},
		{"a stream with its usage", chat("usage", "", body(answer+"end x", streamed+`,"stream_options":{"include_usage":true}`))},
		{"long events", chat("long", "", body("start m say "+long+" say "+strings.Repeat("y", 300)+" end x", streamed))},
		{"a stream to HTTP/1.0", strings.Replace(chat("old", "", body(answer+"end x", streamed)), "HTTP/1.1", "HTTP/1.0", 1)},
		{"one body", chat("whole", "", body(answer+"end x", ""))},
		{"one body to HTTP/1.0", strings.Replace(chat("whole-old", "", body(answer+"end x", "")), "HTTP/1.1", "HTTP/1.0", 1)},
		{"a failure in mid-stream", chat("fails", "", body("start m say one fail peer_lost", streamed))},
		{"a failure before the first token", chat("refused", "", body("fail overloaded", streamed))},
		{"a failure without a stream", chat("fails-whole", "", body("start m say one fail peer_lost", ""))},
		{"headers before the first token", chat("late", "", body("hold x fail overloaded", streamed))},
		{"a pause", chat("pause", "", body("start m say one hold x say two end x", streamed))},
		{"a kept stream", chat("kept", "X-Leave: detach\r\n", body(answer+"end x", streamed))},
		{"a kept stream that fails", chat("kept-fails", "X-Leave: detach\r\n", body("start m say one fail peer_lost", streamed))},
		{"a kept stream that is refused", chat("kept-refused", "X-Leave: detach\r\n", body("fail overloaded", streamed))},
		{"a kept stream as one body", chat("kept-whole", "X-Leave: detach\r\n", body(answer+"end x", ""))},
		{"a reader", "GET /v1/streams/kept/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"},
		{"a text completion", post("/v1/completions", "X-Request-Id: text\r\n", `{"model":"m","prompt":"`+"x"+`","stream":true}`)},
		{"SGLang", post("/generate", "X-Request-Id: sg\r\n", `{"text":"x","stream":true}`)},
		{"SGLang as one body", post("/generate", "X-Request-Id: sg-whole\r\n", `{"text":"x"}`)},
		{"two requests on one connection", strings.Replace(chat("first", "", body(answer+"end x", streamed)), "Connection: close\r\n", "", 1) +
			chat("second", "", body(answer+"end x", ""))},
	} {
		at, resume := url, func() {}
		switch c.name {
		case "headers before the first token":
			at, resume = silent, func() { close(silentChat.release) }
		case "a pause":
			at, resume = pausing, func() { close(pausingChat.release) }
		}
		fmt.Fprintf(&got, "=== %s\n%s\n", c.name, exchangePausing(t, at, c.request, resume))
	}
	const file = "testdata/wire.txt"
	if *updateWire {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, after := strings.Split(string(want), "=== "), strings.Split(got.String(), "=== ")
	if len(before) != len(after) {
		t.Fatalf("%d answers, want %d", len(after)-1, len(before)-1)
	}
	for i := range before {
		if before[i] != after[i] {
			t.Errorf("got\n%q, want\n%q", after[i], before[i])
		}
	}
}
