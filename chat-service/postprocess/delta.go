package postprocess

import (
	"slices"
	"sync"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// Delta returns a message with a delta that has only text.
func Delta(text string) *chatv1.GenerateResponse {
	d := delta{text: text}
	return d.message()
}

func endMessage(end *llmv1.End) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: end}}
}

// A delta collects the output of the stages since the last message.
type delta struct {
	text, reasoning string
	tokens          uint32
	ids             []uint32
	logprobs        []*chatv1.TokenLogprob
	calls           []*chatv1.ToolCallDelta
	remainder       bool
	cached          *uint32 // tokens of the prompt; nil after the first message
	byLogprobs      bool    // tokens and ids do not include the tokens of logprobs

	reuse bool     // messages are used again
	last  *message // valid until recycle; nil without reuse
}

// messages has the messages of deltas with reuse.
var messages = sync.Pool{New: func() any { return new(message) }}

// A message is a message with a delta, in one piece of memory.
type message struct {
	resp  chatv1.GenerateResponse
	oneof chatv1.GenerateResponse_Delta
	delta chatv1.Delta
}

// counted returns the number of tokens that the delta counts.
func (d *delta) counted() uint32 {
	if d.byLogprobs {
		return d.tokens + uint32(len(d.logprobs))
	}
	return d.tokens
}

func (d *delta) begin(index uint32, id, name string) {
	d.calls = append(d.calls, &chatv1.ToolCallDelta{Index: index, Id: id, Name: name})
}

func (d *delta) arguments(index uint32, piece string) {
	if n := len(d.calls); n > 0 && d.calls[n-1].GetIndex() == index {
		d.calls[n-1].Arguments += piece
		return
	}
	d.calls = append(d.calls, &chatv1.ToolCallDelta{Index: index, Arguments: piece})
}

// message returns the delta as a message, and resets it.
func (d *delta) message() *chatv1.GenerateResponse {
	m := d.last
	switch {
	case !d.reuse:
		m = new(message)
	case m == nil:
		m = messages.Get().(*message) //nolint:forcetypeassert // the pool has nothing else
		d.last = m
	}
	m.delta.Choice = 0
	m.delta.Text, m.delta.Reasoning, m.delta.Tokens = d.text, d.reasoning, d.counted()
	if d.byLogprobs {
		for _, p := range d.logprobs {
			d.ids = append(d.ids, p.GetId())
		}
	}
	m.delta.Ids, m.delta.Logprobs, m.delta.ToolCalls = slices.Clip(d.ids), d.logprobs, d.calls
	m.delta.Remainder, m.delta.CachedTokens, m.delta.Last = d.remainder, d.cached, false
	m.oneof.Delta = &m.delta
	m.resp.Message = &m.oneof
	*d = delta{byLogprobs: d.byLogprobs, reuse: d.reuse, last: d.last}
	return &m.resp
}

// recycle ends the use of the last message.
func (d *delta) recycle() {
	if m := d.last; m != nil {
		m.delta.Text, m.delta.Reasoning, m.delta.Ids, m.delta.Logprobs, m.delta.ToolCalls = "", "", nil, nil, nil
		d.last = nil
		messages.Put(m)
	}
}
