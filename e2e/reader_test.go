package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/lab"
)

// A keptStream is the answer of POST /v1/streams.
type keptStream struct {
	ID, Events string
	Token      string `json:"read_token"`
	Resumable  bool
}

// postStream sends a request for a stream that can be read again. headers are names and values.
func (w *whence) postStream(t *testing.T, a ask, headers ...string) reply {
	t.Helper()
	return replyTo(t)(w.do(t.Context(), http.MethodPost, w.url("/v1/streams"), a, headers...))
}

// makeStream creates a kept stream.
func (w *whence) makeStream(t *testing.T, a ask, headers ...string) (m keptStream) {
	t.Helper()
	r := w.postStream(t, a, headers...)
	if err := json.Unmarshal(r.body, &m); err != nil || r.status != http.StatusCreated {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	return m
}

// A reader follows a stream as EventSource does.
type reader struct {
	t     *testing.T
	url   string
	last  string // id of the last event
	text  strings.Builder
	names []string // of events that are not deltas
	err   *refusal // if the stream failed

	resp   *http.Response
	events *lab.Events
}

// read returns an unconnected reader of a stream at an api-service.
func (m keptStream) read(t *testing.T, addr string) *reader {
	r := &reader{t: t, url: "http://" + addr + m.Events + "?token=" + m.Token}
	t.Cleanup(r.cut)
	return r
}

// connect requests the events after the reader's cursor, and returns the status.
func (r *reader) connect() int {
	r.t.Helper()
	r.cut()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.last != "" {
		req.Header.Set("Last-Event-ID", r.last)
	}
	if r.resp, err = (&http.Transport{DisableKeepAlives: true}).RoundTrip(req); err != nil {
		r.t.Fatal(err)
	}
	r.events = lab.NewEvents(r.resp.Body)
	return r.resp.StatusCode
}

// cut closes the reader's connection.
func (r *reader) cut() {
	if r.resp != nil {
		_ = r.resp.Body.Close()
	}
}

// next reads one event; ok is false when the connection has ended.
func (r *reader) next() (ok bool) {
	r.t.Helper()
	for {
		e, err := r.events.Next()
		if err != nil {
			return false
		}
		if e.Comment != "" {
			continue
		}
		if e.ID == "" || e.ID == r.last {
			r.t.Fatalf("an event has the id %q after %q: %q", e.ID, r.last, e.Data)
		}
		r.last = e.ID
		var d struct {
			Text  string
			Error *refusal
		}
		if err := json.Unmarshal([]byte(e.Data), &d); err != nil {
			r.t.Fatalf("%q: %v", e.Data, err)
		}
		r.text.WriteString(d.Text)
		if e.Name != "delta" {
			r.names = append(r.names, e.Name)
		}
		if d.Error != nil {
			r.err = d.Error
		}
		return true
	}
}

// begun connects and reads up to the first text.
func (r *reader) begun() *reader {
	r.t.Helper()
	if status := r.connect(); status != http.StatusOK {
		r.t.Fatalf("status %d", status)
	}
	for n := r.text.Len(); r.text.Len() == n; {
		if !r.next() {
			r.t.Fatal("the stream ended before its text")
		}
	}
	return r
}

// rest reads until the connection ends, which must be at the end of the stream.
func (r *reader) rest() *reader {
	r.t.Helper()
	for r.next() {
	}
	if !r.over() {
		r.t.Fatalf("the reader was cut after %q with %d bytes", r.last, r.text.Len())
	}
	return r
}

// over reports whether the reader has received the stream's ending.
func (r *reader) over() bool {
	return len(r.names) > 0 && (r.names[len(r.names)-1] == "ending" || r.names[len(r.names)-1] == "error")
}

// completed checks that the stream completed with the whole text, and that nothing follows the
// ending.
func (r *reader) completed(want string) {
	r.t.Helper()
	if got := r.text.String(); got != want || strings.Join(r.names, " ") != "usage ending" {
		r.t.Errorf("the reader has %d bytes and %v, want %d bytes:\n%q\n%q", len(got), r.names, len(want), got, want)
	}
	if status := r.connect(); status != http.StatusNoContent {
		r.t.Errorf("after the ending the status is %d", status)
	}
}

// failed checks the ending of a failed stream.
func (r *reader) failed(want lab.Statement) {
	r.t.Helper()
	if got := r.err.statement(); got != want || strings.Join(r.names, " ") != "error" {
		r.t.Errorf("the reader got %q and the events %v, want %q", got, r.names, want)
	}
	if status := r.connect(); status != http.StatusNoContent {
		r.t.Errorf("after the ending the status is %d", status)
	}
}

// TestReaderIsCutAgainAndAgain cuts a reader after each event: about two hundred times, and less often on a
// machine that stands still in between.
func TestReaderIsCutAgainAndAgain(t *testing.T) {
	eachTopology(t, flags{worker: []string{"--pace", "100"}}, func(t *testing.T, w *whence) {
		want := w.answer(t, greedy(long, "max_tokens", 200))
		m := w.makeStream(t, greedy(long, "max_tokens", 200))
		r := m.read(t, w.api)
		cuts := 0
		for ; !r.over(); cuts++ {
			if status := r.connect(); status != http.StatusOK {
				t.Fatalf("status %d after %q", status, r.last)
			}
			if !r.next() {
				t.Fatalf("there was no event after %q", r.last)
			}
			r.cut()
		}
		if cuts < 2 {
			t.Errorf("there was %d cut", cuts)
		}
		r.completed(want)
		m.read(t, w.api).begun().rest().completed(want) // a late reader
		w.idle(t)
	})
}
