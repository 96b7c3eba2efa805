package run

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
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
	a := &answer{
		id: "id", first: 100 * time.Millisecond, took: 1100 * time.Millisecond,
		ending: &client.Ending{Reason: client.Completed, Path: client.Path{"engine", "api-service"}, Usage: &client.Usage{Completion: 31}},
	}
	if got := a.summary(); got != "[completed by engine; 31 tokens, 30.0/s; first token after 100ms]\n[whence why id]" {
		t.Error(got)
	}
	path := client.Path{"llm-worker/0", "api-service"}
	a = &answer{id: "id", ending: &client.Ending{Reason: client.PeerLost, Path: path, Err: &client.Error{Reason: client.PeerLost, Path: path, Message: "gone"}}}
	if got := a.summary(); got != "[peer_lost by llm-worker/0 (llm-worker/0 > api-service): gone]\n[whence why id]" {
		t.Error(got)
	}
}

// A fakeEdge has one model, and one stream, which continues until it is stopped.
type fakeEdge struct {
	begun, stopped chan struct{}
}

func (e *fakeEdge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	o := &options{}
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

func TestWrongOptionsAreMisuse(t *testing.T) {
	for want, args := range map[string][]string{
		"--temperature is \"hot\"":        {"--temperature", "hot", "hi"},
		"--max-tokens is -1":              {"--max-tokens", "-1", "hi"},
		"--url is \"nowhere\"":            {"--url", "nowhere", "hi"},
		"did you mean --temperature?":     {"--temprature", "1"},
		"is an api-service running there": {"--url", "http://127.0.0.1:1", "hi"},
	} {
		var out, errs bytes.Buffer
		if status := cli.Execute(t.Context(), New(), args, &out, &errs); status == 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: status %d, %s", args, status, &errs)
		}
	}
}
