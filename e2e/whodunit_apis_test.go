package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/internal/wstest"
	"github.com/whence-dev/whence/lab"
)

// An apiStream is a stream of another API than POST /v1/chat/completions, after its first text.
type apiStream interface {
	close()
	// failed reads to the end, which must be one failure in the form of the API, and returns it. The
	// form depends on the reason.
	failed(reason string) *refusal
}

// rowsOver returns the rows of an API: leaving, failing and draining.
func rowsOver(open func(s *scene) apiStream) []row {
	drained := func(hop string) func(*scene) *refusal {
		return func(s *scene) *refusal {
			l := open(s)
			s.drain(hop)
			e := l.failed("draining")
			s.procs[hop].exit(s.t)
			return e
		}
	}
	killed := func(hop string) func(*scene) *refusal {
		return func(s *scene) *refusal {
			l := open(s)
			s.fault(func() { s.procs[hop].kill(s.t) })
			return l.failed("peer_lost")
		}
	}
	return []row{
		{name: "client closes its connection", flags: slow, act: func(s *scene) *refusal {
			l := open(s)
			s.fault(l.close)
			return nil
		}},
		{name: "engine fails", flags: slow, id: "fault:llm-worker:fail:1", act: func(s *scene) *refusal {
			e := open(s).failed("engine_failed")
			s.faultLogged()
			return e
		}},
		{name: "api-service drains", flags: drain(slow), act: drained(api0)},
		{name: "chat-service drains", flags: drain(slow), act: drained(chatService)},
		{name: "llm-worker drains", flags: drain(slow), act: drained(work)},
		{name: "llm-worker is killed", flags: slow, act: killed(work)},
		{name: "chat-service is killed", flags: slow, act: killed(chatService)},
		{name: "DELETE of the stream", flags: slow, act: func(s *scene) *refusal {
			l := open(s)
			s.fault(func() { s.cancel(s.t, s.addrs[api0], s.id) })
			return l.failed("user_stop")
		}},
		{name: "upstream engine of the only worker closes in mid-answer again and again", upstream: breaksOff(""), act: func(s *scene) *refusal {
			return open(s).failed("peer_lost")
		}},
	}
}

// TestWhodunitOfMessages is TestWhodunit for POST /v1/messages.
func TestWhodunitOfMessages(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	playFaults(t, *asGateway, append(rowsOver(openMessage),
		row{name: "client closes before the first token", flags: oneSlow, act: func(s *scene) *refusal {
			s.occupy()
			conn := s.connect(s.t)
			s.askFor(s.t, conn, "/v1/messages", messageOf(long, true), s.id)
			s.busy(s.t, 1, 1)
			s.fault(func() { _ = conn.Close() })
			return nil
		}},
		row{name: "client closes a request for a whole answer", flags: slow, act: func(s *scene) *refusal {
			conn := s.connect(s.t)
			s.askFor(s.t, conn, "/v1/messages", messageOf(long, false), s.id)
			s.busy(s.t, 1, 0)
			s.fault(func() { _ = conn.Close() })
			return nil
		}},
	))
}

// TestWhodunitOfResponses is TestWhodunit for POST /v1/responses, and for its WebSocket.
func TestWhodunitOfResponses(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	playFaults(t, *asGateway, append(rowsOver(openResponse),
		row{name: "client closes its WebSocket", flags: slow, act: func(s *scene) *refusal {
			d := s.openDialogue()
			s.fault(func() { d.Raw(wstest.CloseFrame(1001)) })
			return nil
		}},
		row{name: "client resets its WebSocket", flags: slow, act: func(s *scene) *refusal {
			d := s.openDialogue()
			s.fault(d.Reset)
			return nil
		}},
		row{name: "llm-worker is killed over a WebSocket", fault: "llm-worker is killed", flags: slow, act: func(s *scene) *refusal {
			d := s.openDialogue()
			s.fault(func() { s.procs[work].kill(s.t) })
			return d.failed()
		}},
		row{name: "api-service drains over a WebSocket", fault: "api-service drains", flags: drain(slow), act: func(s *scene) *refusal {
			d := s.openDialogue()
			s.drain(api0)
			e := d.failed()
			if end := d.End(); end.Code != 1012 || len(end.Messages) > 0 {
				s.t.Errorf("%+v", end)
			}
			s.procs[api0].exit(s.t)
			return e
		}},
	))
}

// messageOf returns a body of POST /v1/messages for the most likely answer.
func messageOf(prompt string, stream bool) ask {
	return ask{"model": model, "max_tokens": 900, "temperature": 0, "stream": stream, "messages": []any{map[string]any{"role": "user", "content": prompt}}}
}

// openOver requests a stream of an API.
func (s *scene) openOver(path string, a ask) *http.Response {
	s.t.Helper()
	resp, err := s.sendTo(s.t, path, a, s.id)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("status %d: %s", resp.StatusCode, readAll(s.t, resp).body)
	}
	return resp
}

// drain terminates a process that waits 200 ms for its streams.
func (s *scene) drain(hop string) {
	s.t.Helper()
	s.fault(func() { s.procs[hop].terminate(s.t) })
	s.at = s.at.Add(200 * time.Millisecond)
}

// A messageStream is a stream of POST /v1/messages.
type messageStream struct {
	t    *testing.T
	body io.Closer
	in   *lab.Events
}

// openMessage requests a message and returns at the first text.
func openMessage(s *scene) apiStream {
	s.t.Helper()
	resp := s.openOver("/v1/messages", messageOf(long, true))
	m := &messageStream{t: s.t, body: resp.Body, in: lab.NewEvents(resp.Body)}
	s.t.Cleanup(m.close)
	for {
		if name, data := m.next(); name == "content_block_delta" {
			return m
		} else if name == "" || name == "error" {
			s.t.Fatalf("the message ended before its text: %s", data)
		}
	}
}

func (m *messageStream) close() { _ = m.body.Close() }

// next reads one event. The name "" means the end of the body.
func (m *messageStream) next() (name, data string) {
	m.t.Helper()
	e, err := m.in.Next()
	switch {
	case errors.Is(err, io.EOF):
		return "", ""
	case err != nil:
		m.t.Fatalf("the message was cut: %v", err)
	}
	return e.Name, e.Data
}

// failed implements apiStream. The failure is one error event.
func (m *messageStream) failed(reason string) *refusal {
	m.t.Helper()
	kind := "api_error"
	if reason == "draining" {
		kind = "overloaded_error"
	}
	for {
		name, data := m.next()
		switch name {
		case "":
			m.t.Fatal("the message ended without an error")
		case "error":
			if again, more := m.next(); again != "" {
				m.t.Fatalf("%s follows the error", more)
			}
			return m.refusal(kind, data)
		}
	}
}

// refusal reads the data of an error event.
func (m *messageStream) refusal(kind, data string) *refusal {
	m.t.Helper()
	var e struct {
		Type   string
		Error  struct{ Type, Message string }
		Whence struct {
			Reason, Origin string
			Path           []string
		}
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type != "error" || e.Error.Type != kind || len(e.Whence.Path) == 0 || e.Whence.Origin != e.Whence.Path[0] {
		m.t.Fatalf("%v: the error is %s, want the type %s", err, data, kind)
	}
	return &refusal{Type: e.Error.Type, Message: e.Error.Message, Reason: e.Whence.Reason, Path: e.Whence.Path}
}

// A response is a stream of POST /v1/responses.
type response struct {
	t      *testing.T
	body   io.Closer
	in     *lab.Events
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
func openResponse(s *scene) apiStream {
	s.t.Helper()
	resp := s.openOver("/v1/responses", ask{"model": model, "temperature": 0, "stream": true, "store": false, "input": long})
	l := &response{t: s.t, body: resp.Body, in: lab.NewEvents(resp.Body)}
	s.t.Cleanup(l.close)
	for {
		e, err := l.next()
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
func (l *response) next() (e responseEvent, err error) {
	l.t.Helper()
	event, err := l.in.Next()
	if err != nil || event.Comment != "" {
		return e, err
	}
	if err := json.Unmarshal([]byte(event.Data), &e); err != nil || e.Sequence != l.events {
		l.t.Fatalf("event %d is %s: %v", l.events, event.Data, err)
	}
	l.events++
	return e, nil
}

// failed implements apiStream. The failure is one event response.failed.
func (l *response) failed(reason string) *refusal {
	l.t.Helper()
	status := "failed"
	if reason == "user_stop" {
		status = "cancelled"
	}
	var last responseEvent
	for {
		e, err := l.next()
		switch {
		case errors.Is(err, io.EOF):
			if last.Type != "response.failed" || last.Response.Status != status || last.Response.Error == nil ||
				last.Whence == nil || len(last.Whence.Path) == 0 || last.Whence.Origin != last.Whence.Path[0] {
				l.t.Fatalf("the last event is %+v", last)
			}
			return &refusal{Message: last.Response.Error.Message, Code: &last.Whence.Reason, Reason: last.Whence.Reason, Path: last.Whence.Path}
		case err != nil:
			l.t.Fatalf("the response was cut: %v", err)
		case last.Whence != nil && e.Type != "":
			l.t.Fatalf("%+v follows the last event %+v", e, last)
		case e.Type != "":
			last = e
		}
	}
}
