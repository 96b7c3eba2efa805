package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/internal/wstest"
)

// responseRows are faults of streams of POST /v1/responses: leaving, failing and draining.
var responseRows = []row{
	{name: "client of a response closes its connection", flags: slow, reason: "client_gone", origin: []string{"client", api0}, deaf: true, act: func(s *scene) *refusal {
		l := s.openResponse()
		s.fault(l.close)
		return nil
	}},
	{name: "client closes its WebSocket in a response", flags: slow, reason: "client_gone", origin: []string{"client", api0}, deaf: true, act: func(s *scene) *refusal {
		d := s.openDialogue()
		s.fault(func() { d.Raw(wstest.CloseFrame(1001)) })
		return nil
	}},
	{name: "client resets its WebSocket in a response", flags: slow, reason: "client_gone", origin: []string{"client", api0}, deaf: true, act: func(s *scene) *refusal {
		d := s.openDialogue()
		s.fault(d.Reset)
		return nil
	}},
	{name: "llm-worker is killed during a response over a WebSocket", flags: slow, reason: "peer_lost", origin: []string{work}, dead: work, still: true, act: func(s *scene) *refusal {
		d := s.openDialogue()
		s.fault(func() { s.procs[work].kill(s.t) })
		return d.failed()
	}},
	{name: "api-service drains during a response over a WebSocket", flags: drain(slow), reason: "draining", origin: []string{api0}, leaves: api0, act: func(s *scene) *refusal {
		d := s.openDialogue()
		s.fault(func() { s.procs[api0].terminate(s.t) })
		s.at = s.at.Add(200 * time.Millisecond)
		e := d.failed()
		if end := d.End(); end.Code != 1012 || len(end.Messages) > 0 {
			s.t.Errorf("%+v", end)
		}
		s.procs[api0].exit(s.t)
		return e
	}},
	{name: "DELETE of a response's stream", flags: slow, reason: "user_stop", origin: []string{"client", api0}, act: func(s *scene) *refusal {
		l := s.openResponse()
		s.fault(func() { s.cancel(s.t, s.addrs[api0], s.id) })
		return l.failed(s.t, "cancelled")
	}},
	{name: "llm-worker is killed during a response", flags: slow, reason: "peer_lost", origin: []string{work}, dead: work, still: true, act: func(s *scene) *refusal {
		l := s.openResponse()
		s.fault(func() { s.procs[work].kill(s.t) })
		return l.failed(s.t, "failed")
	}},
	{name: "upstream engine of the only worker fails in the middle of a response", upstream: breaksOff(""), path: chain[:2], reason: "peer_lost", origin: []string{"engine", work, chatService}, still: true, act: func(s *scene) *refusal {
		return s.openResponse().failed(s.t, "failed")
	}},
	{name: "chat-service drains during a response", flags: drain(slow), reason: "draining", origin: []string{chatService}, leaves: chatService, act: func(s *scene) *refusal {
		return s.drainedResponse(chatService)
	}},
	{name: "api-service drains during a response", flags: drain(slow), reason: "draining", origin: []string{api0}, leaves: api0, act: func(s *scene) *refusal {
		return s.drainedResponse(api0)
	}},
}

// TestWhodunitOfResponses is TestWhodunit for POST /v1/responses.
func TestWhodunitOfResponses(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	playFaults(t, *asGateway, responseRows)
}

// drainedResponse terminates a process in the middle of a response.
func (s *scene) drainedResponse(hop string) *refusal {
	l := s.openResponse()
	s.fault(func() { s.procs[hop].terminate(s.t) })
	s.at = s.at.Add(200 * time.Millisecond)
	e := l.failed(s.t, "failed")
	s.procs[hop].exit(s.t)
	return e
}

// A response is a stream of POST /v1/responses.
type response struct {
	body   io.Closer
	frames *bufio.Reader
	events int
}

// A responseEvent is an event of a response.
type responseEvent struct {
	Type     string
	Sequence int `json:"sequence_number"`
	Response struct {
		Status string
		Error  *struct{ Code, Message string }
	}
	Whence *struct {
		Reason, Origin string
		Path           []string
	}
}

// openResponse requests a response and returns at the first text.
func (s *scene) openResponse() *response {
	s.t.Helper()
	resp, err := s.sendTo(s.t, "/v1/responses", ask{"model": model, "temperature": 0, "stream": true, "store": false, "input": long}, s.id)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("status %d: %s", resp.StatusCode, readAll(s.t, resp).body)
	}
	l := &response{body: resp.Body, frames: bufio.NewReader(resp.Body)}
	s.t.Cleanup(l.close)
	for {
		e, err := l.next(s.t)
		if err != nil {
			s.t.Fatalf("the response ended before its text: %v", err)
		}
		if e.Type == "response.output_text.delta" {
			return l
		}
	}
}

func (l *response) close() { _ = l.body.Close() }

// next reads one event. A comment is an event without a type.
func (l *response) next(t *testing.T) (e responseEvent, err error) {
	t.Helper()
	text, err := frame(l.frames)
	if err != nil {
		return e, err
	}
	_, data, ok := strings.Cut(text, "data: ")
	if !ok {
		return e, nil
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil || e.Sequence != l.events {
		t.Fatalf("event %d is %s: %v", l.events, text, err)
	}
	l.events++
	return e, nil
}

// failed reads to the end, which must be one event response.failed with a status, and returns its
// ending.
func (l *response) failed(t *testing.T, status string) *refusal {
	t.Helper()
	var last responseEvent
	for {
		e, err := l.next(t)
		switch {
		case errors.Is(err, io.EOF):
			if last.Type != "response.failed" || last.Response.Status != status || last.Response.Error == nil || last.Whence.Origin != last.Whence.Path[0] {
				t.Fatalf("the last event is %+v", last)
			}
			return &refusal{Message: last.Response.Error.Message, Code: &last.Whence.Reason, Reason: last.Whence.Reason, Path: last.Whence.Path}
		case err != nil:
			t.Fatalf("the response was cut: %v", err)
		case last.Whence != nil && e.Type != "":
			t.Fatalf("%+v follows the last event %+v", e, last)
		case e.Type != "":
			last = e
		}
	}
}
