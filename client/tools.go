package client

import "encoding/json"

// A Tool is a function that the model may call. The caller runs it, and says what came of it in a Message of the role "tool".
type Tool struct {
	Name        string
	Description string // for the model
	Parameters  any    // JSON Schema of the arguments; nil for none
}

// MarshalJSON writes the tool as chat completions have it.
func (t Tool) MarshalJSON() ([]byte, error) {
	type function struct {
		Name        string `json:"name"`
		Description string `json:"description,omitempty"`
		Parameters  any    `json:"parameters,omitempty"`
	}
	return json.Marshal(map[string]any{"type": "function", "function": function(t)})
}

// A Call is a call of a tool that a model has made.
type Call struct {
	ID        string
	Name      string
	Arguments string // JSON
}

// MarshalJSON writes the call as chat completions have it.
func (c Call) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"id": c.ID, "type": "function", "function": map[string]string{"name": c.Name, "arguments": c.Arguments},
	})
}

// A CallPiece is a piece of a call.
type CallPiece struct {
	Index     int    // of the call in its answer
	ID, Name  string // in the call's first piece
	Arguments string // all pieces', joined, are the call's
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
