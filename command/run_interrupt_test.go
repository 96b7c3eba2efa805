package command

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/client"
	"github.com/whence-dev/whence/internal/polltest"
)

func newInterruptEdge() *interruptEdge {
	return &interruptEdge{make(chan struct{}), make(chan struct{})}
}

func TestInterruptStopsTheStreamAndPrintsItsEnding(t *testing.T) {
	e := newInterruptEdge()
	var out, notes bytes.Buffer
	signals := make(chan os.Signal, 1)
	c := newTestChat(t, e, &out, &notes, signals)
	go func() {
		<-e.begun
		signals <- os.Interrupt
	}()
	wantInterrupted(t, c.askOnce(t.Context(), "hi"))
	if out.String() != "Hello\n" || !strings.HasPrefix(notes.String(), "[user_stop by client (client > api-service): stopped; first token after ") {
		t.Errorf("%q, %q", &out, &notes)
	}
}

func TestInterruptBeforeTheStreamExistsEndsTheCommand(t *testing.T) {
	e := newInterruptEdge()
	var out, notes bytes.Buffer
	signals := make(chan os.Signal, 1)
	c := newTestChat(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			e.ServeHTTP(w, r)
			return
		}
		signals <- os.Interrupt
		_, _ = http.MaxBytesReader(w, r.Body, maxPrompt).Read(make([]byte, maxPrompt)) // so that the server sees the end of the connection
		<-r.Context().Done()
	}), &out, &notes, signals)
	wantInterrupted(t, c.askOnce(t.Context(), "hi"))
}

// TestInterruptWhileTheStreamIsMadeStopsIt: the service has made the stream although the request was
// canceled.
func TestInterruptWhileTheStreamIsMadeStopsIt(t *testing.T) {
	e := newInterruptEdge()
	var out, notes bytes.Buffer
	signals := make(chan os.Signal, 1)
	c := newTestChat(t, e, &out, &notes, signals)
	signals <- os.Interrupt
	ctx, leave := context.WithCancel(t.Context())
	watch := c.watchInterrupts(t.Context(), leave)
	<-ctx.Done()
	watch.attach(c.client.Resume("s", client.Cursor{}))
	if !watch.end() {
		t.Error("the watch reports no signal")
	}
	select {
	case <-e.stopped:
	default:
		t.Error("the stream is not stopped")
	}
}

// TestInterruptDoesNotWaitForTheAnswerToItsStop: the stream has its ending, so nobody needs the answer.
func TestInterruptDoesNotWaitForTheAnswerToItsStop(t *testing.T) {
	e := newInterruptEdge()
	var out, notes bytes.Buffer
	signals := make(chan os.Signal, 1)
	c := newTestChat(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			close(e.stopped)
			<-r.Context().Done()
			return
		}
		e.ServeHTTP(w, r)
	}), &out, &notes, signals)
	go func() {
		<-e.begun
		signals <- os.Interrupt
	}()
	done := make(chan error, 1)
	go func() { done <- c.askOnce(t.Context(), "hi") }()
	wantInterrupted(t, polltest.Receive(t, "the command does not wait for the answer to its stop", done))
}

func TestSignalEndsThePrompt(t *testing.T) {
	signals, typed := make(chan os.Signal, 1), make(chan struct{})
	defer close(typed)
	signals <- os.Interrupt
	_, err := await(func() (string, error) { <-typed; return "", nil }, signals)
	wantInterrupted(t, err)
}
