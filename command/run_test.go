package command

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/client"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestPromptIsArgumentsAndStandardInput(t *testing.T) {
	for _, c := range []struct {
		args []string
		in   string
		want string
	}{
		{[]string{"What", "is", "it?"}, "ignored", "What is it?"},
		{nil, "from\nstdin\n\n", "from\nstdin"},
		{[]string{"Review this:", "-"}, "+ line\n", "Review this:\n+ line"},
		{[]string{"-"}, "\n", ""},
		{[]string{"  "}, "", ""},
		{nil, strings.Repeat("x", maxPrompt+1), ""},
	} {
		got, err := readPrompt(c.args, strings.NewReader(c.in))
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q with %.20q: %.20q, %v", c.args, c.in, got, err)
		}
	}
}

func TestSummarySaysWhoEndedTheStreamAndWhy(t *testing.T) {
	a := &chatAnswer{
		id: "id", first: 100 * time.Millisecond, took: 1100 * time.Millisecond,
		ending: &client.Ending{Reason: client.Completed, Path: client.Path{"engine", "api-service"}, Usage: &client.Usage{Completion: 31}},
	}
	if got := a.summary(); got != "[completed by engine; 31 tokens, 30.0/s; first token after 100ms]\n[whence why id]" {
		t.Error(got)
	}
	path := client.Path{"llm-worker/0", "api-service"}
	a = &chatAnswer{id: "id", ending: &client.Ending{Reason: client.PeerLost, Path: path, Err: &client.Error{Reason: client.PeerLost, Path: path, Message: "gone"}}}
	if got := a.summary(); got != "[peer_lost by llm-worker/0 (llm-worker/0 > api-service): gone]\n[whence why id]" {
		t.Error(got)
	}
}

func TestAMessageHasSeveralLines(t *testing.T) {
	for keys, want := range map[string]string{
		"hello\r":                                        "hello",
		"one\\\rtwo\\\rthree\r":                          "one\ntwo\nthree",
		"\"\"\"one\rtwo \"quoted\"\"\"\"\r":              "one\ntwo \"quoted",
		"\"\"\"one\"\"\"\r":                              "one",
		"\x1b[200~first\rsecond\r\n\rthird\n\x1b[201~\r": "first\nsecond\n\nthird\n",
		"Explain: \x1b[200~a\nb\x1b[201~, please\r":      "Explain: a\nb, please",
		"\x1b[Ax\r":                                      "x", // an arrow begins like a paste
	} {
		for _, in := range []io.Reader{strings.NewReader(keys), iotest.OneByteReader(strings.NewReader(keys))} {
			if got, err := readMessage(newTerminal(in, io.Discard)); got != want || err != nil {
				t.Errorf("%q: %q, %v", keys, got, err)
			}
		}
	}
	if _, err := readMessage(newTerminal(strings.NewReader("\"\"\"one\r\x04"), io.Discard)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestMisspeltCommandsAreNotMessages(t *testing.T) {
	for line, want := range map[string]bool{"/wy": true, "/wy not": true, " /wy": false, "/etc/passwd": false, "why /new": false, "/?x": true, "/ what": false} {
		if got := commandLike.MatchString(line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// TestRetriesAreTold: api-service dies in the middle of an answer, and has lost the stream when it is
// back.
func TestRetriesAreTold(t *testing.T) {
	var reads atomic.Int32
	var out, notes bytes.Buffer
	c := newTestChat(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/v1/streams/s/events":
			newInterruptEdge().ServeHTTP(w, r)
		case reads.Add(1) == 1:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("retry: 50\n\nid: a.1\nevent: delta\ndata: {\"text\":\"Hello\"}\n\n"))
		default:
			http.NotFound(w, r)
		}
	}), &out, &notes, make(chan os.Signal))
	var exit *cli.ExitError
	if err := c.askOnce(t.Context(), "hi"); !errors.As(err, &exit) || exit.Status != 1 {
		t.Error(err)
	}
	if want := "[connection broken, resuming (2)…]\n[api-service has lost the stream: it has restarted, or the stream ended long ago]\n"; out.String() != "Hello\n" || notes.String() != want {
		t.Errorf("%q, %q", &out, &notes)
	}
}

// An interruptEdge has one model, and one stream, which continues until it is stopped.
type interruptEdge struct {
	begun, stopped chan struct{}
}

func (e *interruptEdge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/models":
		_, _ = w.Write([]byte(`{"data":[{"id":"m"}]}`))
	case "POST /v1/streams":
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"id":"s"}`))
	case "GET /v1/streams/s/events":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("id: a.1\nevent: delta\ndata: {\"text\":\"Hello\"}\n\n"))
		_ = http.NewResponseController(w).Flush()
		close(e.begun)
		select {
		case <-e.stopped:
		case <-r.Context().Done():
			return
		}
		failure := &streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath("client", "api-service"), Message: "stopped"}
		_, _ = w.Write([]byte("id: a.2\nevent: error\ndata: " + string(failure.JSON()) + "\n\n"))
	case "DELETE /v1/streams/s":
		close(e.stopped)
		w.WriteHeader(http.StatusAccepted)
	default:
		http.NotFound(w, r)
	}
}

// newTestChat returns a chat with a service, which writes to out and notes and gets signals.
func newTestChat(t *testing.T, service http.Handler, out, notes *bytes.Buffer, signals chan os.Signal) *chat {
	t.Helper()
	s := httptest.NewServer(service)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.CloseClientConnections()
		s.Close()
	})
	o := &runOptions{}
	o.api.URL = s.URL
	c, err := newChat(t.Context(), o, out, notes)
	if err != nil {
		t.Fatal(err)
	}
	c.signals = func() (<-chan os.Signal, func()) { return signals, func() {} }
	return c
}

// wantInterrupted wants the exit status of an interrupted command.
func wantInterrupted(t *testing.T, err error) {
	t.Helper()
	var exit *cli.ExitError
	if !errors.As(err, &exit) || exit.Status != 130 {
		t.Errorf("%v, want the exit status 130", err)
	}
}

func TestWrongOptionsOfRunAreMisuse(t *testing.T) {
	for want, args := range map[string][]string{
		"--temperature is \"hot\"":        {"--temperature", "hot", "hi"},
		"--max-tokens is -1":              {"--max-tokens", "-1", "hi"},
		"--url is \"nowhere\"":            {"--url", "nowhere", "hi"},
		"did you mean --temperature?":     {"--temprature", "1"},
		"is an api-service running there": {"--url", "http://127.0.0.1:1", "hi"},
	} {
		var out, errs bytes.Buffer
		if status := cli.Execute(t.Context(), Run(), args, &out, &errs); status == 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: status %d, %s", args, status, &errs)
		}
	}
}
