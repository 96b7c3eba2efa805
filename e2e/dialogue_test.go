package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/whence-dev/whence/internal/wstest"
)

// A dialogue is a WebSocket of the Responses API.
type dialogue struct {
	*wstest.Client
	t *testing.T
}

// dialogue opens a WebSocket of the Responses API. headers are pairs of names and values.
func (w *whence) dialogue(t *testing.T, headers ...string) *dialogue {
	t.Helper()
	c, refused := wstest.Dial(t, w.url("/v1/responses"), headers...)
	if c == nil {
		t.Fatal(refused)
	}
	return &dialogue{c, t}
}

// create requests a response.
func (d *dialogue) create(fields ask) {
	d.t.Helper()
	fields["type"], fields["model"], fields["temperature"] = "response.create", model, 0
	b, err := json.Marshal(fields)
	if err != nil {
		d.t.Fatal(err)
	}
	d.Say(string(b))
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

// next returns the next message.
func (d *dialogue) next() (raw []byte, e responseEvent) {
	d.t.Helper()
	opcode, raw := d.Next()
	if opcode != wstest.Text || json.Unmarshal(raw, &e) != nil {
		d.t.Fatalf("frame %d: %s", opcode, raw)
	}
	return raw, e
}

// last returns the last message of a response, or an error.
func (d *dialogue) last() (raw []byte, e responseEvent) {
	d.t.Helper()
	for e.Type != "error" && e.Whence == nil {
		raw, e = d.next()
	}
	return raw, e
}

// completed reads a response to its end, and returns it.
func (d *dialogue) completed() (r responses.Response) {
	d.t.Helper()
	raw, e := d.last()
	var last struct{ Response json.RawMessage }
	if err := json.Unmarshal(raw, &last); err != nil || e.Type != "response.completed" && e.Type != "response.incomplete" {
		d.t.Fatalf("%v: %s", err, raw)
	}
	if err := json.Unmarshal(last.Response, &r); err != nil {
		d.t.Fatal(err)
	}
	return r
}

// TestResponsesOverAWebSocket continues responses that are not stored. The answers equal those of
// requests with the whole conversation.
func TestResponsesOverAWebSocket(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		c := w.sdk()
		d := w.dialogue(t)
		d.create(ask{"input": short, "max_output_tokens": 20, "store": false})
		first := d.completed()
		if want := wholeResponse(t, &c, limited(responded(short), 20)).OutputText(); first.OutputText() != want {
			t.Errorf("%q; POST answers %q", first.OutputText(), want)
		}
		d.create(ask{"input": then, "max_output_tokens": 20, "store": false, "previous_response_id": first.ID})
		second := d.completed()
		whole := append([]json.RawMessage{userMessage(short)}, itemsOf(t, first)...)
		whole = append(whole, userMessage(then))
		d.create(ask{"input": whole, "max_output_tokens": 20})
		if again := d.completed(); second.PreviousResponseID != first.ID || second.Usage.InputTokens != again.Usage.InputTokens || second.OutputText() != again.OutputText() {
			t.Errorf("%s\nwith the whole conversation\n%s", second.RawJSON(), again.RawJSON())
		}
		d.create(ask{"input": then, "tools": "none"})
		if raw, e := d.last(); e.Type != "error" || !strings.Contains(string(raw), `"status":400,"error":{`) || !strings.Contains(string(raw), `"param":"tools"`) {
			t.Errorf("%s", raw)
		}
		d.create(ask{"input": then, "model": model, "max_output_tokens": 20, "previous_response_id": second.ID}) // no longer the last response
		if raw, e := d.last(); e.Type != "error" || !strings.Contains(string(raw), "previous_response_not_found") {
			t.Errorf("%s", raw)
		}
		d.create(ask{"input": short, "max_output_tokens": 20})
		if got := d.completed(); got.OutputText() != first.OutputText() {
			t.Errorf("%s", got.RawJSON())
		}
		d.Raw(wstest.CloseFrame(1000))
		if e := d.End(); e.Code != 1000 {
			t.Errorf("%+v", e)
		}
		w.idle(t)
	})
}

func limited(p responses.ResponseNewParams, tokens int64) responses.ResponseNewParams {
	p.MaxOutputTokens = param.NewOpt(tokens)
	return p
}

func userMessage(text string) json.RawMessage {
	b, _ := json.Marshal(map[string]any{"role": "user", "content": text}) // cannot fail: plain strings
	return b
}

// itemsOf returns the items of a response.
func itemsOf(t *testing.T, r responses.Response) (items []json.RawMessage) {
	t.Helper()
	var raw struct{ Output []json.RawMessage }
	if err := json.Unmarshal([]byte(r.RawJSON()), &raw); err != nil {
		t.Fatal(err)
	}
	return raw.Output
}

// upgrades counts the requests of a client: WebSocket handshakes and others.
type upgrades struct{ sockets, others int }

func (u *upgrades) count(r *http.Request) {
	if r.Header.Get("Upgrade") == "websocket" {
		u.sockets++
	} else if r.Method == http.MethodPost {
		u.others++
	}
}
