package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// onlyReader hides the length of a body, so that the body is sent in chunks.
type onlyReader struct{ io.Reader }

func TestBodiesInChunksAreReadAndLimited(t *testing.T) {
	eachTopology(t, flags{api: []string{"--max-body", "1000"}}, func(t *testing.T, w *whence) {
		small, err := json.Marshal(greedy("What is 2 + 3?"))
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			body   []byte
			status int
		}{
			{small, http.StatusOK},
			{append(bytes.Clone(small), bytes.Repeat([]byte(" "), 1000-len(small))...), http.StatusOK},
			{append(bytes.Clone(small), bytes.Repeat([]byte(" "), 1001-len(small))...), http.StatusRequestEntityTooLarge},
		} {
			for _, body := range []io.Reader{bytes.NewReader(test.body), onlyReader{bytes.NewReader(test.body)}} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url("/v1/chat/completions"), body)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				resp, err := w.http.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if r := readAll(t, resp); r.status != test.status {
					t.Errorf("%d bytes as %T: status %d: %s", len(test.body), body, r.status, r.body)
				}
			}
		}
	})
}

func TestSlowSendersTimeOut(t *testing.T) {
	eachTopology(t, flags{api: []string{"--read-timeout", "300ms"}}, func(t *testing.T, w *whence) {
		const header = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		for sent, want := range map[string]string{
			// Hertz's own response, which cannot be changed.
			"POST /v1/chat/completions HTTP/1.1\r\nHost":                           "HTTP/1.1 400 ",
			header + "Content-Length: 100\r\n\r\n{":                                "HTTP/1.1 408 Request Timeout\r\n",
			header + "Transfer-Encoding: chunked\r\n\r\n5\r\n{":                    "HTTP/1.1 408 Request Timeout\r\n",
			header + "Content-Length: 100000\r\n\r\n" + strings.Repeat(" ", 50000): "HTTP/1.1 408 Request Timeout\r\n",
		} {
			conn := w.connect(t)
			if _, err := io.WriteString(conn, sent); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn) // to the end of the connection
			if err != nil || !strings.HasPrefix(string(got), want) {
				t.Errorf("after %.200q: %v %q", sent, err, got)
			}
			if strings.Contains(want, "408") && !strings.Contains(string(got), `"reason":"deadline","origin":"api-service","path":["api-service"]`) {
				t.Errorf("after %.200q: %q", sent, got)
			}
		}
		w.works(t)
	})
}

// TestRefusalsKeepTheConnectionUsable pipelines refused requests and an accepted request on one
// connection.
func TestRefusalsKeepTheConnectionUsable(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		conn := w.connect(t)
		var sent strings.Builder
		statuses := []int{415, 400, 404, 405, 200}
		for _, status := range statuses {
			body, kind, path, method := `{"model":"none"}`, "application/json", "/v1/chat/completions", "POST"
			switch status {
			case 415:
				kind = "text/plain"
			case 404:
				path = "/nowhere"
			case 405:
				method = "PUT"
			case 200:
				b, err := json.Marshal(greedy("What is 2 + 3?"))
				if err != nil {
					t.Fatal(err)
				}
				body = string(b)
			}
			fmt.Fprintf(&sent, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", method, path, w.api, kind, len(body), body)
		}
		if _, err := io.WriteString(conn, sent.String()); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(conn)
		for _, want := range statuses {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, resp); got.status != want {
				t.Errorf("status %d, want %d: %s", got.status, want, got.body)
			}
		}
	})
}

func TestRefusalsDoNotEchoMuchOfTheRequest(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		huge := strings.Repeat("a", 100_000)
		for name, a := range map[string]ask{
			"field":            greedy(short, huge, 1),
			"field of message": {"model": model, "messages": []any{map[string]any{"role": "user", "content": "", huge: 1}}},
			"model":            greedy(short, "model", huge),
			"role":             {"model": model, "messages": []any{map[string]any{"role": huge, "content": ""}}},
			"type of part":     {"model": model, "messages": []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": huge}}}}},
			"response_format":  greedy(short, "response_format", map[string]any{"type": huge}),
			"stream option":    greedy(short, "stream_options", map[string]any{huge: true}),
			"token id":         greedy(short, "logit_bias", map[string]any{huge: 1}),
		} {
			if r := w.post(t, a); r.status < 400 || r.status >= 500 || len(r.body) > 4096 {
				t.Errorf("a huge %s is answered with status %d and %d bytes", name, r.status, len(r.body))
			}
		}
		for _, p := range w.all() {
			lines := p.Log.All()
			for _, line := range lines {
				if len(line) > 8192 {
					t.Errorf("%s logged a line of %d bytes: %.200s…", p.Name, len(line), line)
				}
			}
		}
	})
}

// connect opens a connection to the api-service, closed after the test.
func (w *whence) connect(t *testing.T) *net.TCPConn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.api)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}
