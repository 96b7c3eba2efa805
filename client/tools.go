package client

import "encoding/json"

// A Tool is a function that the model may call. The caller runs it and returns its result in a
// Message of the role "tool".
type Tool struct {
	Name        string
	Description string // for the model
	Parameters  any    // JSON Schema of the arguments; nil means no arguments
}

// MarshalJSON writes the tool in the format of chat completions.
func (t Tool) MarshalJSON() ([]byte, error) {
	type function struct {
		Name        string `json:"name"`
		Description string `json:"description,omitempty"`
		Parameters  any    `json:"parameters,omitempty"`
	}
	return json.Marshal(map[string]any{"type": "function", "function": function(t)})
}

// A Call is a tool call by the model.
type Call struct {
	ID        string
	Name      string
	Arguments string // JSON
}

// MarshalJSON writes the call in the format of chat completions.
func (c Call) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"id": c.ID, "type": "function", "function": map[string]string{"name": c.Name, "arguments": c.Arguments},
	})
}

// A CallPiece is a piece of a tool call.
type CallPiece struct {
	Index     int    // index of the call within its answer
	ID, Name  string // in the call's first piece only
	Arguments string // the pieces' arguments, concatenated, are the call's
}

// Join adds the pieces of an event to calls.
func Join(calls []Call, pieces []CallPiece) []Call {
	for _, p := range pieces {
		if p.Index == len(calls) {
			calls = append(calls, Call{ID: p.ID, Name: p.Name})
		}
		if p.Index >= 0 && p.Index < len(calls) {
			calls[p.Index].Arguments += p.Arguments
		}
	}
	return calls
}
