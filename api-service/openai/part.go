package openai

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/whence-dev/whence/api-service/customtool"
	"github.com/whence-dev/whence/api-service/jsontext"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// callForms are the forms in which the calls of an answer are written.
type callForms struct {
	custom map[string]bool // names of custom tools
	older  bool            // calls are function_call, the form before tool calls
	// inputs has the calls of custom tools so far, by choice and number.
	inputs map[[2]uint32]*customInput
}

// A customInput is the input of a call of a custom tool.
type customInput struct {
	customtool.Input
	left string // what is left at its end
}

// finish ends the calls of a choice. It returns a piece for each call that has something left, which
// appendCall writes.
func (f *callForms) finish(choice uint32) (pieces []*chatv1.ToolCallDelta) {
	for call, input := range f.inputs {
		if call[0] != choice {
			continue
		}
		if input.left = input.End(); input.left != "" {
			pieces = append(pieces, &chatv1.ToolCallDelta{Index: call[1]})
		}
	}
	slices.SortFunc(pieces, func(a, b *chatv1.ToolCallDelta) int { return cmp.Compare(a.GetIndex(), b.GetIndex()) })
	return pieces
}

// appendPart appends the delta of a chunk. The first delta of a choice has the role.
func (f *callForms) appendPart(b []byte, d *chatv1.Delta, role bool) []byte {
	b = append(b, '{')
	if role {
		b = append(b, `"role":"assistant",`...)
	}
	calls := len(d.GetToolCalls()) > 0
	if d.GetReasoning() != "" {
		b = append(b, `"reasoning_content":`...)
		b = append(jsontext.String(b, d.GetReasoning()), ',')
	}
	switch {
	case d.GetText() != "" || !calls && d.GetReasoning() == "" && (role || d != nil):
		b = append(b, `"content":`...)
		b = append(jsontext.String(b, d.GetText()), ',')
	case role && calls:
		b = append(b, `"content":null,`...)
	}
	if calls {
		b = append(f.appendCalls(b, d), ',')
	}
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	return append(b, '}')
}

func (f *callForms) appendCalls(b []byte, d *chatv1.Delta) []byte {
	if f.older { // such an answer has one call
		b = append(b, `"function_call":`...)
		return appendFunction(b, d.GetToolCalls()[0])
	}
	b = append(b, `"tool_calls":[`...)
	for i, piece := range d.GetToolCalls() {
		if i > 0 {
			b = append(b, ',')
		}
		b = f.appendCall(b, d.GetChoice(), piece)
	}
	return append(b, ']')
}

// appendCall appends a piece of a call. The first piece has id, type and name; SDKs require
// arguments there, too.
func (f *callForms) appendCall(b []byte, choice uint32, piece *chatv1.ToolCallDelta) []byte {
	call := [2]uint32{choice, piece.GetIndex()}
	kind := "function"
	if f.custom[piece.GetName()] {
		if f.inputs == nil {
			f.inputs = map[[2]uint32]*customInput{}
		}
		f.inputs[call] = &customInput{}
	}
	input := f.inputs[call]
	if input != nil {
		kind = "custom"
	}
	b = append(b, `{"index":`...)
	b = strconv.AppendUint(b, uint64(piece.GetIndex()), 10)
	if piece.GetId() != "" {
		b = append(b, `,"id":`...)
		b = jsontext.String(b, piece.GetId())
		b = append(append(append(b, `,"type":"`...), kind...), '"')
	}
	b = append(append(append(b, `,"`...), kind...), `":`...)
	if input == nil {
		return append(appendFunction(b, piece), '}')
	}
	b = appendName(append(b, '{'), piece)
	b = jsontext.String(append(b, `"input":`...), input.Add(piece.GetArguments())+input.left)
	return append(b, '}', '}')
}

func appendFunction(b []byte, piece *chatv1.ToolCallDelta) []byte {
	b = appendName(append(b, '{'), piece)
	b = append(b, `"arguments":`...)
	return append(jsontext.String(b, piece.GetArguments()), '}')
}

func appendName(b []byte, piece *chatv1.ToolCallDelta) []byte {
	if piece.GetName() == "" {
		return b
	}
	b = append(b, `"name":`...)
	return append(jsontext.String(b, piece.GetName()), ',')
}

// A toolCall is a tool call of an answer that is not streamed. It has either a function or a custom
// tool.
type toolCall struct {
	ID       string        `json:"id"`
	Type     string        `json:"type"`
	Function *functionCall `json:"function,omitempty"`
	Custom   *customCall   `json:"custom,omitempty"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type customCall struct {
	Name  string `json:"name"`
	Input string `json:"input"`
}

func (f *callForms) toolCallsOf(calls []*chatv1.ToolCall) (list []toolCall) {
	for _, call := range calls {
		if f.custom[call.GetName()] {
			list = append(list, toolCall{ID: call.GetId(), Type: "custom", Custom: &customCall{call.GetName(), customtool.Text(call.GetArguments())}})
			continue
		}
		list = append(list, toolCall{ID: call.GetId(), Type: "function", Function: &functionCall{call.GetName(), call.GetArguments()}})
	}
	return list
}
