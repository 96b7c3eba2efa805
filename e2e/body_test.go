package e2e

import (
	"context"
	"net"
	"strings"
	"testing"
)

// TestRefusalsDoNotEchoMuchOfTheRequest: neither do answers that leave a field out.
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
			leftOut := name == "field" || name == "field of message" || name == "type of part" || name == "stream option"
			if r := w.post(t, a); (r.status >= 400) == leftOut || r.status >= 500 || len(r.body) > 4096 {
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
