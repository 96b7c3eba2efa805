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
)

// messageRows are faults of streams of POST /v1/messages: leaving, failing and draining.
var messageRows = []row{
	{name: "client of a message closes its connection", flags: slow, reason: "client_gone", origin: []string{"client", api0}, deaf: true, act: func(s *scene) *refusal {
		m := s.openMessage()
		s.fault(m.close)
		return nil
	}},
	{name: "client closes before the first token of a message", flags: oneSlow, reason: "client_gone", origin: []string{"client", api0}, deaf: true, act: func(s *scene) *refusal {
		s.occupy()
		conn := s.connect(s.t)
		s.askFor(s.t, conn, "/v1/messages", messageOf(long, true), s.id)
		s.busy(s.t, 1, 1)
		s.fault(func() { _ = conn.Close() })
		return nil
	}},
	{name: "client closes a request for a whole message", flags: slow, reason: "client_gone", origin: []string{"client", api0}, deaf: true, act: func(s *scene) *refusal {
		conn := s.connect(s.t)
		s.askFor(s.t, conn, "/v1/messages", messageOf(long, false), s.id)
		s.busy(s.t, 1, 0)
		s.fault(func() { _ = conn.Close() })
		return nil
	}},
	{name: "DELETE of a message", flags: slow, reason: "user_stop", origin: []string{"client", api0}, act: func(s *scene) *refusal {
		m := s.openMessage()
		s.fault(func() { s.cancel(s.t, s.addrs[api0], s.id) })
		return m.failed("api_error")
	}},
	{name: "engine fails during a message", flags: slow, id: "fault:llm-worker:fail:1", reason: "engine_failed", origin: []string{"engine", work}, act: func(s *scene) *refusal {
		e := s.openMessage().failed("api_error")
		s.faultLogged()
		return e
	}},
	{name: "upstream engine of the only worker fails in the middle of a message", upstream: breaksOff(""), path: chain[:2], reason: "peer_lost", origin: []string{"engine", work, chatService}, still: true, act: func(s *scene) *refusal {
		return s.openMessage().failed("api_error")
	}},
	{name: "llm-worker is killed during a message", flags: slow, reason: "peer_lost", origin: []string{work}, dead: work, still: true, act: func(s *scene) *refusal {
		m := s.openMessage()
		s.fault(func() { s.procs[work].kill(s.t) })
		return m.failed("api_error")
	}},
	{name: "chat-service is killed during a message", flags: slow, reason: "peer_lost", origin: []string{chatService}, dead: chatService, act: func(s *scene) *refusal {
		m := s.openMessage()
		s.fault(func() { s.procs[chatService].kill(s.t) })
		return m.failed("api_error")
	}},
	{name: "api-service drains during a message", flags: drain(slow), reason: "draining", origin: []string{api0}, leaves: api0, act: func(s *scene) *refusal {
		return s.drainedMessage(api0)
	}},
	{name: "chat-service drains during a message", flags: drain(slow), reason: "draining", origin: []string{chatService}, leaves: chatService, act: func(s *scene) *refusal {
		return s.drainedMessage(chatService)
	}},
	{name: "llm-worker drains during a message", flags: drain(slow), reason: "draining", origin: []string{work}, leaves: work, act: func(s *scene) *refusal {
		return s.drainedMessage(work)
	}},
}

// TestWhodunitOfMessages is TestWhodunit for POST /v1/messages.
func TestWhodunitOfMessages(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	playFaults(t, *asGateway, messageRows)
}

// messageOf returns a body of POST /v1/messages for the most likely answer.
func messageOf(prompt string, stream bool) ask {
	return ask{"model": model, "max_tokens": 900, "temperature": 0, "stream": stream, "messages": []any{map[string]any{"role": "user", "content": prompt}}}
}

// drainedMessage terminates a process in the middle of a message.
func (s *scene) drainedMessage(hop string) *refusal {
	m := s.openMessage()
	s.fault(func() { s.procs[hop].terminate(s.t) })
	s.at = s.at.Add(200 * time.Millisecond)
	e := m.failed("overloaded_error")
	s.procs[hop].exit(s.t)
	return e
}

// A messageStream is a stream of POST /v1/messages.
type messageStream struct {
	t      *testing.T
	body   io.Closer
	frames *bufio.Reader
}

// openMessage requests a message and returns at the first text.
func (s *scene) openMessage() *messageStream {
	s.t.Helper()
	resp, err := s.sendTo(s.t, "/v1/messages", messageOf(long, true), s.id)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("status %d: %s", resp.StatusCode, readAll(s.t, resp).body)
	}
	m := &messageStream{t: s.t, body: resp.Body, frames: bufio.NewReader(resp.Body)}
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
	text, err := frame(m.frames)
	switch {
	case errors.Is(err, io.EOF):
		return "", ""
	case err != nil:
		m.t.Fatalf("the message was cut: %v", err)
	}
	name, data, _ = strings.Cut(strings.TrimPrefix(text, "event: "), "\ndata: ")
	return name, data
}

// failed reads to the end, which must be one error event of the type kind, and returns its ending.
func (m *messageStream) failed(kind string) *refusal {
	m.t.Helper()
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
