package client

import (
	"encoding/json"
	"maps"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Message is one turn of a conversation.
type Message struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCalls  []Call `json:"tool_calls,omitempty"`   // of the role "assistant"
	ToolCallID string `json:"tool_call_id,omitempty"` // of the role "tool": the call that it answers
}

// A Request asks for a stream: a body of chat completions, or, with a "prompt" among Extra instead of Messages, of completions;
// and how it may be left. The service refuses fields that it cannot honour.
type Request struct {
	Model       string
	Messages    []Message
	Tools       []Tool
	MaxTokens   int      // 0 leaves it to the service
	Temperature *float64 // nil leaves it to the service; new(0.0) is greedy
	// Extra are all other fields of the body. They win over those above.
	Extra map[string]any

	Leave string // what becomes of the stream when nobody reads it: "cancel", "linger:30s", "detach" or "drain"; "" is the service's own
	Key   string // of this request, for a caller that may repeat it after a crash; "" is one of its own for each call
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
		return nil, &streamerr.Error{Reason: streamerr.Invalid, Message: "the request is no JSON: " + err.Error(), Cause: err}
	}
	return b, nil
}
