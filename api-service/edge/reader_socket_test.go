package edge_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/wstest"
)

// A socketEvent is an event of a stream over a WebSocket.
type socketEvent struct {
	ID, Event string
	Data      json.RawMessage
}

// eventsOf returns the events of a WebSocket that has ended.
func eventsOf(t *testing.T, e wstest.Ending) (all []socketEvent, text string) {
	t.Helper()
	for _, m := range e.Messages {
		var one socketEvent
		var delta struct{ Text string }
		if err := json.Unmarshal([]byte(m), &one); err != nil || json.Unmarshal(one.Data, &delta) != nil {
			t.Fatal(m, err)
		}
		all, text = append(all, one), text+delta.Text
	}
	return all, text
}

// readOver opens a WebSocket that reads a stream.
func readOver(t *testing.T, base string, m keptStream, query string) *wstest.Client {
	t.Helper()
	c, refused := wstest.Dial(t, base+m.Events+"?token="+url.QueryEscape(m.Token)+query)
	if c == nil {
		t.Fatal(refused)
	}
	return c
}

// TestReaderOverAWebSocket checks that events have the same ids and data as the server-sent events.
func TestReaderOverAWebSocket(t *testing.T) {
	base, _ := start(t, nil)
	m := makeStream(t, base, "start m say one say two wait 50ms say three end x")
	e := readOver(t, base, m, "").End()
	all, text := eventsOf(t, e)
	if last := all[len(all)-1]; text != "onetwothree" || e.Code != 1000 || last.Event != "ending" || !strings.Contains(string(last.Data), `"reason":"completed"`) {
		t.Errorf("%d %q %+v", e.Code, text, last)
	}
	sse, _ := events(t, ask(t, "GET", base+m.Events+"?token="+m.Token, ""))
	if got, want := all[len(all)-1], sse[len(sse)-1]; got.ID != want.id || string(got.Data) != want.data {
		t.Errorf("%+v, and over server-sent events %+v", got, want)
	}
	e = readOver(t, base, m, "&last_event_id="+all[0].ID).End()
	if again, text := eventsOf(t, e); len(again) == 0 || text == "onetwothree" || e.Code != 1000 {
		t.Errorf("%d %q %+v", e.Code, text, again)
	}
	if e = readOver(t, base, m, "&last_event_id="+all[len(all)-1].ID).End(); len(e.Messages) != 0 || e.Code != 1000 {
		t.Errorf("%+v", e)
	}
}

func TestReaderOverAWebSocketReadsTheFailure(t *testing.T) {
	base, _ := start(t, nil)
	m := makeStream(t, base, "start m say one wait 50ms fail peer_lost")
	e := readOver(t, base, m, "").End()
	all, _ := eventsOf(t, e)
	if last := all[len(all)-1]; e.Code != 4009 || e.Text != "peer_lost" || last.Event != "error" || !strings.Contains(string(last.Data), `"path":["chat-service","api-service"]`) {
		t.Errorf("%d %+v", e.Code, last)
	}
	e = readOver(t, base, m, "&last_event_id="+all[len(all)-1].ID).End() // the reader has the error already
	if len(e.Messages) > 0 || e.Code != 4009 || e.Text != "peer_lost" {
		t.Errorf("a reader that reconnects gets %+v", e)
	}
}

// TestReadersOverWebSocketsLeave: a reader that leaves does not end the stream, unless the policy
// says so.
func TestReadersOverWebSocketsLeave(t *testing.T) {
	t.Parallel()
	base, chat := start(t, nil)
	for policy, ends := range map[string]bool{"linger:2s": true, "detach": false} { // a stream lingers for its first reader, too
		wait := "500ms"
		if ends {
			wait = "1m"
		}
		m := makeStream(t, base, "start m say one wait "+wait+" say two end x", "X-Leave", policy)
		c := readOver(t, base, m, "")
		c.Until("data")
		c.Raw(wstest.CloseFrame(1000))
		if e := c.End(); e.Code != 1000 {
			t.Errorf("%+v", e)
		}
		if ends {
			polltest.Receive(t, "the cause of the stop", chat.causes)
			e := readOver(t, base, m, "").End() // of a reader that has not left
			if all, _ := eventsOf(t, e); e.Text != "client_gone" || all[len(all)-1].Event != "error" {
				t.Errorf("%+v", e)
			}
			continue
		}
		if _, text := eventsOf(t, readOver(t, base, m, "").End()); text != "onetwo" {
			t.Error(text)
		}
	}
}

func TestReadersOverWebSocketsAreChecked(t *testing.T) {
	base, _ := start(t, nil)
	m := makeStream(t, base, "start m say one wait 1m", "Authorization", "Bearer me")
	for want, address := range map[int]string{
		404: base + m.Events + "?token=x",
		400: base + m.Events + "?token=" + m.Token + "&last_event_id=x",
	} {
		if c, refused := wstest.Dial(t, address, "Authorization", "Bearer x"); refused.Status != want || c != nil {
			t.Errorf("%+v; want %d", refused, want)
		}
	}
	if _, refused := wstest.Dial(t, base+m.Events+"?token="+m.Token, "Origin", "https://evil.example"); refused.Status != 403 {
		t.Errorf("%+v", refused)
	}
	c := readOver(t, base, m, "")
	c.Say("hello")
	if e := c.End(); e.Code != 4012 || e.Text != "invalid" {
		t.Errorf("%+v", e)
	}
}

// TestReadersOverWebSocketsReadADrain: the stream ends with the process that runs it, and its
// readers read the ending.
func TestReadersOverWebSocketsReadADrain(t *testing.T) {
	t.Parallel()
	var c *wstest.Client
	t.Run("edge", func(edgeT *testing.T) { // the edge drains at the end of this subtest
		base, chat := start(edgeT, func(c *edge.Config) { c.Grace = 50 * time.Millisecond })
		chat.stays = true
		c = readOver(t, base, makeStream(edgeT, base, "start m say one wait 1m"), "")
		c.Until("data")
	})
	e := c.End()
	all, _ := eventsOf(t, e)
	if last := all[len(all)-1]; e.Code != 1012 || e.Text != "draining" || last.Event != "error" {
		t.Errorf("%+v", e)
	}
}

// TestCloseFrameJustBeforeTheEndCounts: the log says that the reader left with a close frame.
func TestCloseFrameJustBeforeTheEndCounts(t *testing.T) {
	var log logtest.Log
	base, _ := startLogging(t, &log, nil)
	for range 20 {
		m := makeStream(t, base, "start m say one wait 1m", "X-Leave", "cancel")
		c := readOver(t, base, m, "")
		c.Until("data")
		c.RawEnd(wstest.CloseFrame(1001))
		log.Await(t, "reader left", "stream="+m.ID+" ", "reason=client_gone", "with the code 1001")
	}
}
