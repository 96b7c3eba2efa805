package client

import (
	"encoding/json"
	"maps"
)

// A Message is one turn of a conversation.
type Message struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCalls  []Call `json:"tool_calls,omitempty"`   // of the role "assistant"
	ToolCallID string `json:"tool_call_id,omitempty"` // of the role "tool": the call that it answers
}

// A Request makes a stream. It is a body of chat completions or, with a "prompt" in Extra instead
// of Messages, of completions; plus the policy for a stream without readers. The service refuses
// fields that it cannot honour.
type Request struct {
	Model       string
	Messages    []Message
	Tools       []Tool
	MaxTokens   int      // 0 means the service's default
	Temperature *float64 // nil means the service's default; new(0.0) is greedy
	// Extra holds all other fields of the body. It overrides the fields above.
	Extra map[string]any

	// What happens to the stream without a reader: "cancel", "linger:30s", "detach" or "drain"; ""
	// means the service's default.
	Leave string
	// Idempotency key, for a caller that may repeat the request after a crash; "" means a new key
	// for each call.
	Key string
}

func (r Request) body() ([]byte, error) {
	fields := map[string]any{"model": r.Model}
	if r.Messages != nil {
		fields["messages"] = r.Messages
	}
	if len(r.Tools) > 0 {
		fields["tools"] = r.Tools
	}
	if r.MaxTokens != 0 {
		fields["max_tokens"] = r.MaxTokens
	}
	if r.Temperature != nil {
		fields["temperature"] = *r.Temperature
	}
	maps.Copy(fields, r.Extra)
	b, err := json.Marshal(fields)
	if err != nil {
		return nil, &Error{Reason: Invalid, Message: "the request cannot be encoded as JSON: " + err.Error(), Cause: err}
	}
	return b, nil
}
