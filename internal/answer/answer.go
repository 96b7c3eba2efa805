// Package answer joins the deltas of an answer.
package answer

import (
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// An Answer is the joined deltas of one stream. The model's context bounds its size. The zero value
// is empty.
type Answer struct {
	text, reasoning strings.Builder
	calls           []*chatv1.ToolCall // without their arguments
	arguments       []*strings.Builder
}

// Add appends a delta.
func (a *Answer) Add(d *chatv1.Delta) {
	a.text.WriteString(d.GetText())
	a.reasoning.WriteString(d.GetReasoning())
	for _, piece := range d.GetToolCalls() {
		if int(piece.GetIndex()) == len(a.calls) {
			a.calls = append(a.calls, &chatv1.ToolCall{Id: piece.GetId(), Name: piece.GetName()})
			a.arguments = append(a.arguments, &strings.Builder{})
		}
		if int(piece.GetIndex()) < len(a.calls) {
			a.arguments[piece.GetIndex()].WriteString(piece.GetArguments())
		}
	}
}

// Text returns the text of the answer.
func (a *Answer) Text() string { return a.text.String() }

// Reasoning returns the reasoning that precedes the answer.
func (a *Answer) Reasoning() string { return a.reasoning.String() }

// Calls returns the tool calls.
func (a *Answer) Calls() []*chatv1.ToolCall {
	for i, call := range a.calls {
		call.Arguments = a.arguments[i].String()
	}
	return a.calls
}
