package dialogue

import (
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/whence-dev/whence/api-service/edge/websocket"
	"github.com/whence-dev/whence/api-service/responses/conversation"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const create = "response.create"

// turn parses a message of the client: a body of POST /v1/responses with a type. It returns a Turn
// even with an error.
func (d *dialogue) turn(m websocket.Message) (*Turn, error) {
	t := &Turn{ID: cmp.Or(d.id, stream.NewID()), Generates: true, dialogue: d, Free: m.Free}
	d.id = ""
	if m.Kind != websocket.Text {
		return t, streamerr.New(streamerr.Invalid, "the message is binary; messages must be text")
	}
	members, err := strict.Fields(m.Data)
	if err == nil {
		err = t.envelope(members)
	}
	if err != nil {
		return t, err
	}
	t.input = members["input"]
	if !t.Generates && (t.input == nil || strict.Null(t.input) || string(t.input) == "[]") {
		t.input = nil
		members["input"] = json.RawMessage(`"-"`) // a message may leave out the input, but a body must have it
	}
	t.Body, err = json.Marshal(members)
	return t, err
}

// envelope parses and removes the members that only messages have, or that a WebSocket decides.
func (t *Turn) envelope(members map[string]json.RawMessage) error {
	raw, ok := members["type"]
	if !ok {
		return streamerr.InvalidParam("type", "type is missing").WithCode(streamerr.CodeMissing)
	}
	kind, err := strict.String("type", raw)
	if err == nil {
		err = strict.OneOf("type", kind, create)
	}
	if err != nil {
		return err
	}
	delete(members, "type")
	for name, set := range map[string]func(value bool) error{
		"generate": func(value bool) error {
			t.Generates = value
			return nil
		},
		"stream": func(value bool) error {
			if !value {
				return streamerr.InvalidParam("stream", "stream is false; a response over a WebSocket is always streamed").WithCode(streamerr.CodeUnsupportedValue)
			}
			return nil
		},
		"background": func(value bool) error {
			if value {
				return streamerr.InvalidParam("background", "background is not supported over a WebSocket; use POST /v1/responses").WithCode(streamerr.CodeUnsupportedValue)
			}
			return nil
		},
	} {
		raw, ok := members[name]
		delete(members, name)
		if !ok || strict.Null(raw) {
			continue
		}
		value, err := strict.Boolean(name, raw)
		if err == nil {
			err = set(value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// items returns the items of the turn's own input.
func (t *Turn) items() []json.RawMessage {
	if t.input == nil {
		return nil
	}
	return conversation.Items(t.input)
}

// problem returns an error message. body is the body of an HTTP response: an object with the member
// error.
func problem(status int, body []byte) []byte {
	b := strconv.AppendInt([]byte(`{"type":"error","status":`), int64(status), 10)
	return append(append(b, ','), body[1:]...)
}

// frames encodes the events of a response, one message each. It implements call.Lines.
type frames struct {
	out      websocket.Encoder
	all      []byte // frames that have not been written
	size     int    // of the events in all, in bytes
	last     int    // size of the last event
	answered int    // the end of the frame that completes the answer; 0 if none does
	skips    bool   // the current event is left out
}

// Begin implements call.Lines.
func (f *frames) Begin() []byte { return f.out.Begin() }

// BeginEvent implements call.Lines. The name of an event is its type. The event error, which precedes
// the last event of a response that failed, is left out: on a WebSocket a message of this type is the
// whole answer to a request.
func (f *frames) BeginEvent(name string) []byte {
	f.skips = name == "error"
	return f.out.Begin()
}

// End implements call.Lines.
func (f *frames) End(line []byte) {
	if f.skips {
		f.skips = false
		return
	}
	frame, size := f.out.End(websocket.Text, line)
	f.all = append(f.all, frame...)
	f.size += size
	f.last = size
}

// Answered marks that the last event completes the answer.
func (f *frames) Answered() { f.answered = len(f.all) }

// take returns the frames since the last take, which are valid until the next event begins, and the
// size of their events in bytes.
func (f *frames) take() (encoded []byte, size int) {
	encoded, size = f.all, f.size
	f.size, f.answered = 0, 0
	f.all = f.all[:0]
	if cap(f.all) > maxKept {
		f.all = nil
	}
	return encoded, size
}

// maxKept bounds the buffer that is kept for the next events, in bytes.
const maxKept = 64 << 10
