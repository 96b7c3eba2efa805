// Package extent determines how much of an answer a client has when it leaves: nothing, a part, a
// part with a whole tool call, or everything except the terminator of the stream.
//
// A Tracker reads the items of a stream before they are sent, and returns the extent that the
// client reaches with each item. The connection of the client knows which of the items the client
// has taken.
package extent

import (
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// An Extent grows while a stream is sent.
type Extent = streamv1.Extent

// The extents.
const (
	Nothing  = streamv1.Extent_EXTENT_NOTHING
	Part     = streamv1.Extent_EXTENT_PART
	ToolCall = streamv1.Extent_EXTENT_TOOL_CALL
	Answer   = streamv1.Extent_EXTENT_ANSWER
)

// Whole reports whether a client with e has the whole answer. A client with EXTENT_UNSPECIFIED has
// the terminator of the stream, too.
func Whole(e Extent) bool { return e == Answer || e == streamv1.Extent_EXTENT_UNSPECIFIED }

// A Tracker follows one stream. The zero value is for a stream with one choice. It is not safe for
// concurrent use.
type Tracker struct {
	// Choices is the number of answers of the stream; 0 means 1.
	Choices int

	reached  Extent
	finished int               // choices with a finish reason
	calls    map[uint32]*input // the current tool call, by choice; nil until there is one
}

// Take returns the extent of a client that has received all items up to out.
func (t *Tracker) Take(out *chatv1.GenerateResponse) Extent {
	switch m := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Delta:
		t.reach(t.delta(m.Delta))
	case *chatv1.GenerateResponse_ChoiceEnd:
		if t.finished++; t.finished >= t.Choices {
			t.reach(Answer)
		} else {
			t.reach(ended(m.ChoiceEnd.GetFinish()))
		}
	case *chatv1.GenerateResponse_End:
		t.reach(Answer)
	default:
		t.reach(Nothing)
	}
	return t.reached
}

// TakeTurn is Take for a conversation: the extent is that of the answer to the current turn.
func (t *Tracker) TakeTurn(out *chatv1.ConverseResponse) Extent {
	switch m := out.GetMessage().(type) {
	case *chatv1.ConverseResponse_Started:
		*t = Tracker{reached: Nothing}
	case *chatv1.ConverseResponse_Delta:
		t.reach(t.delta(m.Delta))
	case *chatv1.ConverseResponse_TurnEnd, *chatv1.ConverseResponse_End:
		t.reach(Answer)
	}
	return t.reached
}

func (t *Tracker) reach(e Extent) { t.reached = max(t.reached, e) }

// ended returns the extent after the end of a choice, while other choices continue.
func ended(finish llmv1.Finish) Extent {
	if finish == llmv1.Finish_FINISH_TOOL_CALLS {
		return ToolCall
	}
	return Part
}

// delta returns the extent that a delta reaches.
func (t *Tracker) delta(d *chatv1.Delta) Extent {
	reached := Part
	for _, c := range d.GetToolCalls() {
		current := t.calls[d.GetChoice()]
		if current == nil || current.call != c.GetIndex() {
			if current != nil {
				reached = ToolCall // the previous call is complete, even without arguments
			}
			if t.calls == nil {
				t.calls = map[uint32]*input{}
			}
			current = &input{call: c.GetIndex()}
			t.calls[d.GetChoice()] = current
		}
		if current.take(c.GetArguments()) {
			reached = ToolCall
		}
	}
	return reached
}

// An input is the received part of a call's arguments: a JSON object, of which only the structure
// matters.
type input struct {
	call    uint32 // the number of the call
	depth   int    // number of open objects and arrays
	quoted  bool   // inside a string
	escaped bool   // after a backslash
}

// take adds a piece, and reports whether it completes the object.
func (i *input) take(piece string) (whole bool) {
	for at := range len(piece) {
		switch c := piece[at]; {
		case i.escaped:
			i.escaped = false
		case i.quoted:
			i.escaped, i.quoted = c == '\\', c != '"'
		case c == '"':
			i.quoted = true
		case c == '{', c == '[':
			i.depth++
		case c == '}', c == ']':
			i.depth--
			whole = whole || i.depth == 0
		}
	}
	return whole
}
