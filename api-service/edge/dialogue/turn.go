package dialogue

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/extent"
	"github.com/whence-dev/whence/api-service/responses/conversation"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Turn is a message that asks for a response, and the response. The goroutine that drives the stream
// calls Write.
type Turn struct {
	// ID is the id of the stream, and Body the body of POST /v1/responses that asks for the same
	// response.
	ID   string
	Body []byte
	// Free returns the memory of Body, once it is no longer needed.
	Free func()
	// Generates is false for a turn that only prepares the next one: Prepare answers it.
	Generates bool

	dialogue *dialogue
	input    json.RawMessage            // the input field of Body; nil if there is none
	earlier  string                     // id of the response that the turn continues
	before   []json.RawMessage          // the conversation up to that response
	known    map[string]json.RawMessage // the items of the dialogue's memory by their ids; nil until Item is called

	call   *call.Call
	record *ledger.Record
	encode call.Writer
	frames frames
	extent extent.Tracker
	began  bool // an event has been written
}

// Earlier returns the conversation up to a response: from the dialogue's memory, or else from
// stored. It implements storage.Memory.
func (t *Turn) Earlier(id string, stored func() ([]json.RawMessage, error)) (items []json.RawMessage, err error) {
	t.earlier = id
	if last := t.dialogue.last; id == last.id {
		t.before = last.items
	} else if t.before, err = stored(); err != nil {
		return nil, err
	}
	return t.before, nil
}

// Item implements storage.Memory.
func (t *Turn) Item(id string) json.RawMessage {
	if t.known == nil {
		t.known = map[string]json.RawMessage{}
		for _, item := range t.dialogue.last.items {
			var named struct{ ID string }
			if json.Unmarshal(item, &named) == nil && named.ID != "" {
				t.known[named.ID] = item
			}
		}
	}
	return t.known[id]
}

// Resolved implements storage.Memory: the dialogue remembers the items themselves.
func (t *Turn) Resolved(found map[string]json.RawMessage) {
	if t.input != nil {
		t.input = conversation.Resolve(t.input, found)
	}
}

// Prepare answers a turn that does not generate: with a response without output, which the next
// turn can continue. The turn has no stream.
func (t *Turn) Prepare(in *call.Call) error {
	t.call, t.encode = in, in.Events()
	t.dialogue.client.NextAnswer()
	for _, out := range []*chatv1.GenerateResponse{
		{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{StreamId: t.ID, Model: in.Request.GetModel()}}},
		{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{t.dialogue.service.Name}, Finish: llmv1.Finish_FINISH_STOP,
		}}},
	} {
		if _, err := t.Write(out); err != nil {
			return nil //nolint:nilerr // the client has gone, and the dialogue ends
		}
	}
	_ = t.Flush() // as above
	return nil
}

// Begin begins the answer to a turn, with the stream of ctx. leave is called when the client is lost.
func (t *Turn) Begin(ctx context.Context, in *call.Call, leave func(cause *streamerr.Error)) {
	t.call, t.encode, t.record = in, in.Events(), ledger.Of(ctx)
	exchange.RecordStatus(t.record, http.StatusSwitchingProtocols)
	t.dialogue.client.NextAnswer()
	t.dialogue.client.EndWith(ctx)
	t.dialogue.onLoss(leave)
}

// Taken returns how much of the answer the client has.
func (t *Turn) Taken() extent.Extent { return t.dialogue.client.Extent() }

// Write writes an item without waiting for the client. waits reports that the client has not taken
// all of it; Flush writes the rest.
func (t *Turn) Write(out *chatv1.GenerateResponse) (waits bool, err error) {
	t.encode(out, &t.frames)
	mark := clientconn.Mark{Extent: t.extent.Take(out), At: t.frames.answered, Last: out.GetEnd() != nil}
	if mark.Last {
		t.remember()
	}
	encoded, size := t.frames.take()
	if size == 0 {
		return false, nil
	}
	if mark.At == 0 {
		mark.At = len(encoded)
	}
	t.record.OutBytes(size)
	t.began = true
	return t.dialogue.client.WriteMarked(encoded, 0, mark)
}

// Flush waits until the client has taken all bytes written.
func (t *Turn) Flush() error { return t.dialogue.client.Flush() }

// End ends the answer with the outcome of its stream.
func (t *Turn) End(ctx context.Context, o rpc.Outcome) {
	if o.Err != nil {
		t.forget()
	}
	switch {
	case !t.dialogue.reads():
	case o.Err == nil: // the last event says that the stream completed
		o.EndingSent(ctx, t.dialogue.form.LastEvent(t.call))
		_ = t.Flush() // client reports why a write failed
	case !t.began:
		out := exchange.Outward(t.call.Param, o.Err)
		status, body := t.dialogue.form.Refusal(out.Reason.HTTPStatus(), out, t.ID)
		t.tell(ctx, o, problem(status, body), strconv.Itoa(status))
	default:
		t.dialogue.form.Fail(t.call, exchange.Outward(t.call.Param, o.Err), t.ID, &t.frames)
		t.tell(ctx, o, nil, exchange.ErrorLine)
	}
}

// tell writes the last message of a stream that failed: message, or the encoded events if message
// is nil.
func (t *Turn) tell(ctx context.Context, o rpc.Outcome, message []byte, code string) {
	client := t.dialogue.client
	encoded, size := t.frames.take()
	var err error
	if message != nil {
		size = len(message)
		err = t.dialogue.conn.Say(message)
	} else {
		_, err = client.Write(encoded, 0)
	}
	t.record.OutBytes(size)
	if err == nil && client.Flush() == nil {
		exchange.RecordEnding(ctx, code, o)
	}
}

// remember stores in the dialogue the conversation with the answer, which is in the last event. A
// conversation that is too long for a request, or for the memory of its owner, is not stored.
func (t *Turn) remember() {
	var last struct {
		Response struct {
			ID     string
			Output []json.RawMessage
		}
	}
	event := t.frames.all[len(t.frames.all)-t.frames.last:]
	if json.Unmarshal(event, &last) != nil { // cannot fail: the encoder writes JSON
		return
	}
	own := append(t.items(), last.Response.Output...)
	all := append(t.before[:len(t.before):len(t.before)], own...)
	size := int64(0)
	for _, item := range all {
		size += int64(len(item))
	}
	d := t.dialogue
	d.forget()
	if size > d.service.MaxMessage {
		return
	}
	var shrink func(int64)
	if size > freeMemory {
		var err error
		if shrink, err = d.reserve(size); err != nil {
			return
		}
	}
	d.last = memory{last.Response.ID, all, shrink}
}

// forget drops the memory if the failed turn has continued it.
func (t *Turn) forget() {
	if t.earlier != "" && t.earlier == t.dialogue.last.id {
		t.dialogue.forget()
	}
}
