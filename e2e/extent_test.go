package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/wstest"
)

// saysAndWaits sends a text, then waits until its caller leaves.
func saysAndWaits(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if text != "" {
			fmt.Fprintf(w, `data: {"choices":[{"index":0,"text":%q,"finish_reason":null}]}`+"\n\n", text)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// saysAll sends a whole answer.
func saysAll(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, `data: {"choices":[{"index":0,"text":%q,"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n", text)
	}
}

// TestLeavingReportsTheExtent checks that log, story, `whence why` and metrics report how much of
// the answer a client had when it left. The engine waits after a part of the answer, so that the
// client has exactly that part.
func TestLeavingReportsTheExtent(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{all: measured, worker: onServer("openai", scripted(t, map[int]http.HandlerFunc{
		20:  saysAndWaits(""),
		21:  saysAndWaits("The fox"),
		600: saysAndWaits(`<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call> And`),
		23:  saysAll("The fox."),
	}))})
	tool := map[string]any{"type": "function", "function": map[string]any{"name": "get_weather", "parameters": map[string]any{"type": "object"}}}
	for _, row := range []struct {
		extent string
		leave  func(id string)
	}{
		{"nothing", func(id string) {
			conn := w.dial(t, greedy(short, "stream", true, "max_tokens", 20), id)
			w.busy(t, 1, 0)
			_ = conn.Close()
		}},
		{"part", func(id string) {
			w.leaveAfter(t, greedy(short, "stream", true, "max_tokens", 21), id, "fox")
		}},
		{"tool_call", func(id string) {
			w.leaveAfter(t, greedy(short, "stream", true, "max_tokens", 600, "tools", []any{tool}), id, "Paris")
		}},
		{"answer", func(id string) { // a conversation between two turns; a stream with one answer completes
			c, refused := wstest.Dial(t, w.url("/v1/converse"), idName, id)
			if c == nil {
				t.Fatal(refused)
			}
			c.Say(fmt.Sprintf(`{"chat":{"model":%q,"messages":[{"role":"user","content":"Hi"}],"sampling":{"temperature":0,"max_tokens":23}}}`, model))
			c.Until("turn_end")
			c.Reset()
		}},
	} {
		id := "leaves-with-" + row.extent
		row.leave(id)
		if got := w.ended(t, apiService, id); got.Extent != row.extent || got.Reason != "client_gone" {
			t.Errorf("%s: the log says %s with the extent %q", row.extent, got.Reason, got.Extent)
		}
		if story := w.why(t, id); story.Extent != row.extent {
			t.Errorf("%s: the story has the extent %q", row.extent, story.Extent)
		}
		if out, logs, status := output(t, "whence", "why", id, "--url", w.url("")); status != 0 || !strings.Contains(out, "\nthe client left ") {
			t.Errorf("%s: whence why: %d %s%s", row.extent, status, out, logs)
		}
		if n := w.processes[apiService].scrape(t).Sum("whence_clients_left_total", "hop="+apiService, "extent="+row.extent); n != 1 {
			t.Errorf("%s is counted %v times", row.extent, n)
		}
		w.idle(t)
	}
	if text, id := w.answerOf(t, greedy(short, "stream", true, "max_tokens", 23)); text != "The fox." || w.why(t, id).Extent != "" {
		t.Errorf("%q: a client that stayed has an extent", text)
	}
}

// leaveAfter sends a request, and closes the connection once a word has arrived.
func (w *whence) leaveAfter(t *testing.T, a ask, id, word string) {
	t.Helper()
	conn := w.dial(t, a, id)
	defer conn.Close()
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, word) {
			return
		}
	}
}

// answerOf reads a stream to its end.
func (w *whence) answerOf(t *testing.T, a ask) (text, id string) {
	t.Helper()
	l := w.open(t, a)
	return l.completed(t), l.id
}
