package anthropic

import (
	"strconv"
	"strings"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/jsontext"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// A blockKind is the type of a content block of an answer.
type blockKind string

const (
	noBlock  blockKind = ""
	thinking blockKind = "thinking"
	text     blockKind = "text"
	toolUse  blockKind = "tool_use"
)

// events are the encoder of one stream. Anthropic's answer is a sequence of content blocks, of
// which one is open at a time: a delta of another kind closes the open block and opens the next.
type events struct {
	m         *message
	lines     call.Lines
	started   *llmv1.Started // until message_start is written
	signature string         // of thinking blocks
	open      blockKind      // the kind of the open block
	index     int            // of the open block, or of the next one
	call      uint32         // the number of the call of the open block, if it is a tool_use block
	called    bool           // the answer has a tool call
	space     []byte         // white space before a text block; the model's context bounds it
}

// events encodes the answer as the events message_start, with the first piece; for each block
// content_block_start, content_block_delta and content_block_stop; message_delta; message_stop.
func (m *message) events() call.Writer {
	e := &events{m: m}
	return func(out *chatv1.GenerateResponse, lines call.Lines) {
		e.lines = lines
		switch item := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			e.started, e.signature = item.Started, signatureOf(item.Started)
		case *chatv1.GenerateResponse_Delta:
			e.start(item.Delta.CachedTokens)
			e.delta(item.Delta)
		case *chatv1.GenerateResponse_End:
			e.start(cachedOf(item.End.GetUsage()))
			if len(e.space) > 0 && !e.called { // otherwise the answer is more than white space
				e.into(text)
				e.piece(`{"type":"text_delta","text":`, string(e.space))
			}
			e.close()
			e.end(item.End)
		}
	}
}

// cachedOf returns the cached tokens of a usage; nil if the engine does not say.
func cachedOf(u *llmv1.Usage) *uint32 {
	if u == nil {
		return nil
	}
	return u.CachedTokens
}

// start begins the message, unless it has begun. It comes with the first piece of the answer: by
// then an engine may have told how many tokens of the prompt it found in its KV cache, and the time
// of the first event is that of the first token.
func (e *events) start(cached *uint32) {
	s := e.started
	if s == nil {
		return
	}
	e.started = nil
	b := append(e.lines.BeginEvent("message_start"), `{"type":"message_start","message":`...)
	b = append(b, marshal(e.m.newAnswer(s, &llmv1.Usage{PromptTokens: s.GetPromptTokens(), CachedTokens: cached, Estimated: s.GetEstimated()}))...)
	e.lines.End(append(b, '}'))
}

// delta encodes a delta, which may be several merged deltas. Its first tool calls may continue the
// open block, so they come before its text; earlier text would have closed the block.
func (e *events) delta(d *chatv1.Delta) {
	calls := d.GetToolCalls()
	for len(calls) > 0 && calls[0].GetId() == "" {
		e.arguments(calls[0])
		calls = calls[1:]
	}
	if d.GetReasoning() != "" {
		e.into(thinking)
		if !e.m.hideThinking {
			e.piece(`{"type":"thinking_delta","thinking":`, d.GetReasoning())
		}
	}
	e.text(d.GetText())
	for _, c := range calls {
		if c.GetId() != "" {
			e.close()
			e.begin(toolUse, c)
		}
		e.arguments(c)
	}
}

// arguments encodes a piece of the arguments of the open call. A piece of another call is dropped: a
// closed block cannot continue.
func (e *events) arguments(c *chatv1.ToolCallDelta) {
	if c.GetArguments() != "" && e.open == toolUse && e.call == c.GetIndex() {
		e.piece(`{"type":"input_json_delta","partial_json":`, c.GetArguments())
	}
}

// text encodes a piece of text. White space opens no block: models write it between calls.
func (e *events) text(piece string) {
	switch {
	case piece == "":
		return
	case e.open != text && strings.TrimSpace(piece) == "":
		e.space = append(e.space, piece...)
		return
	}
	e.into(text)
	if len(e.space) > 0 {
		piece, e.space = string(e.space)+piece, nil
	}
	e.piece(`{"type":"text_delta","text":`, piece)
}

// into ensures that a block of kind, which is not a call, is open.
func (e *events) into(kind blockKind) {
	if e.open != kind {
		e.close()
		e.begin(kind, nil)
	}
}

func (e *events) begin(kind blockKind, made *chatv1.ToolCallDelta) {
	b := append(e.lines.BeginEvent("content_block_start"), `{"type":"content_block_start","index":`...)
	b = append(strconv.AppendInt(b, int64(e.index), 10), `,"content_block":`...)
	switch kind {
	case thinking:
		b = append(b, `{"type":"thinking","thinking":"","signature":""}`...)
	case toolUse:
		b = append(jsontext.String(append(b, `{"type":"tool_use","id":`...), made.GetId()), `,"name":`...)
		b = append(jsontext.String(b, made.GetName()), `,"input":{}}`...)
		e.call, e.called, e.space = made.GetIndex(), true, nil
	default:
		b = append(b, `{"type":"text","text":""}`...)
	}
	e.lines.End(append(b, '}'))
	e.open = kind
}

// piece encodes a delta of the open block: an object that begins with head, and ends with a string.
func (e *events) piece(head, value string) {
	b := append(e.lines.BeginEvent("content_block_delta"), `{"type":"content_block_delta","index":`...)
	b = append(strconv.AppendInt(b, int64(e.index), 10), `,"delta":`...)
	e.lines.End(append(jsontext.String(append(b, head...), value), '}', '}'))
}

// close ends the open block, if there is one.
func (e *events) close() {
	if e.open == noBlock {
		return
	}
	if e.open == thinking {
		e.piece(`{"type":"signature_delta","signature":`, e.signature)
	}
	b := append(e.lines.BeginEvent("content_block_stop"), `{"type":"content_block_stop","index":`...)
	e.lines.End(append(strconv.AppendInt(b, int64(e.index), 10), '}'))
	e.open = noBlock
	e.index++
}

func (e *events) end(end *llmv1.End) {
	e.lines.End(append(e.lines.BeginEvent("message_delta"), marshal(struct {
		Type  string `json:"type"`
		Delta stop   `json:"delta"`
		Usage *usage `json:"usage"`
	}{"message_delta", stopOf(end), usageOf(end.GetUsage())})...))
	call.Answered(e.lines)
	e.lines.End(append(e.lines.BeginEvent(done), `{"type":"message_stop"}`...))
}
