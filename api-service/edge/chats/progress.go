package chats

import (
	"maps"
	"slices"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// A progress records the part of a choice that was delivered to the client.
type progress struct {
	end             *chatv1.ChoiceEnd // nil until delivered, and if there is only one choice
	ids             []uint32
	text, reasoning int            // bytes
	arguments       map[uint32]int // bytes, per tool call

	noted int // the number of ids that deltas have passed on to the edge

	// known is the delivered part that the stream has yet to repeat after a restart.
	known struct {
		ids, text, reasoning int
		arguments            map[uint32]int
	}
}

// again records that the stream repeats the answer from its beginning.
func (t *progress) again() {
	t.known.ids, t.known.text, t.known.reasoning, t.known.arguments = len(t.ids), t.text, t.reasoning, maps.Clone(t.arguments)
}

// add removes from d the part that was delivered before, and reports whether anything is left. Each
// repetition has new ids of tool calls; the client keeps the first ids. If passOn is true, d keeps
// the ids of its tokens, and of the earlier tokens whose deltas were dropped.
func (t *progress) add(d *chatv1.Delta, passOn bool) bool {
	again := min(len(d.GetIds()), t.known.ids)
	t.known.ids -= again
	t.ids = append(t.ids, d.GetIds()[again:]...)
	d.Ids = nil
	d.Text = fresh(d.GetText(), &t.known.text)
	t.text += len(d.GetText())
	d.Reasoning = fresh(d.GetReasoning(), &t.known.reasoning)
	t.reasoning += len(d.GetReasoning())
	d.ToolCalls = slices.DeleteFunc(d.GetToolCalls(), t.addCall)
	left := d.GetText() != "" || d.GetReasoning() != "" || len(d.GetToolCalls()) > 0 || len(d.GetLogprobs()) > 0
	if left && passOn {
		d.Ids = t.ids[t.noted:len(t.ids):len(t.ids)]
		t.noted = len(t.ids)
	}
	return left
}

// addCall removes the delivered part of a piece of a tool call. It reports true if nothing is left.
func (t *progress) addCall(call *chatv1.ToolCallDelta) bool {
	if known, ok := t.known.arguments[call.GetIndex()]; ok {
		call.Id, call.Name = "", ""
		call.Arguments = fresh(call.GetArguments(), &known)
		t.known.arguments[call.GetIndex()] = known
		if call.GetArguments() == "" {
			return true
		}
	}
	if t.arguments == nil {
		t.arguments = map[uint32]int{}
	}
	t.arguments[call.GetIndex()] += len(call.GetArguments())
	return false
}

// fresh returns the part of s after its known bytes.
func fresh(s string, known *int) string {
	n := min(len(s), *known)
	*known -= n
	return s[n:]
}
