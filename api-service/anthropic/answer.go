package anthropic

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/whence-dev/whence/api-service/call"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// An answer is the message object: a whole answer, or its beginning in message_start.
type answer struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Role    string `json:"role"`
	Model   string `json:"model"`
	Content []any  `json:"content"`
	stop
	Usage *usage `json:"usage"`
}

// A stop holds stop_reason and stop_sequence, which are null until the answer is complete.
type stop struct {
	Reason   *string `json:"stop_reason"`
	Sequence *string `json:"stop_sequence"`
}

// A usage counts tokens. As in Anthropic's API, input_tokens excludes the tokens found in the KV
// cache.
type usage struct {
	Input         uint32        `json:"input_tokens"`
	CacheCreation uint32        `json:"cache_creation_input_tokens"` // always 0: caching tokens costs nothing
	CacheRead     *uint32       `json:"cache_read_input_tokens"`     // null if the engine does not say
	Output        uint32        `json:"output_tokens"`
	Details       *usageDetails `json:"output_tokens_details,omitempty"`
	Tier          string        `json:"service_tier,omitempty"` // message_delta has none
	Estimated     bool          `json:"estimated,omitempty"`    // the server that generates has not reported the counts, or not yet
}

// usageDetails are present only if reasoning is counted.
type usageDetails struct {
	Thinking uint32 `json:"thinking_tokens"`
}

type thinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type toolUseBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// idPrefix begins the ids of answers. The id of the stream follows.
const idPrefix = "msg_"

// newAnswer returns an answer without content.
func (m *message) newAnswer(s *llmv1.Started, u *llmv1.Usage) *answer {
	a := &answer{ID: idPrefix + s.GetStreamId(), Type: "message", Role: "assistant", Model: s.GetModel(), Content: []any{}, Usage: usageOf(u)}
	if a.Usage.Tier = "standard"; m.request.GetClaim().GetTier() == llmv1.Tier_TIER_PRIORITY {
		a.Usage.Tier = "priority"
	}
	return a
}

// signatureOf returns the signature of a stream's thinking blocks: the id of the stream. The
// signature proves nothing, but some clients do not send a thinking block back without a signature,
// and then the template does not see the reasoning of earlier turns.
func signatureOf(s *llmv1.Started) string { return s.GetStreamId() }

// stopOf returns the stop_reason and stop_sequence of a complete answer.
func stopOf(end *llmv1.End) stop {
	reason := "end_turn"
	switch end.GetFinish() {
	case llmv1.Finish_FINISH_LENGTH:
		reason = "max_tokens"
	case llmv1.Finish_FINISH_TOOL_CALLS:
		reason = "tool_use"
	case llmv1.Finish_FINISH_CONTENT_FILTER:
		reason = "refusal"
	default:
		if matched := end.GetMatchedStop(); matched != "" {
			reason = "stop_sequence"
			return stop{&reason, &matched}
		}
	}
	return stop{Reason: &reason}
}

func usageOf(u *llmv1.Usage) *usage {
	cached := min(u.GetCachedTokens(), u.GetPromptTokens())
	all := &usage{Input: u.GetPromptTokens() - cached, Output: u.GetCompletionTokens(), Estimated: u.GetEstimated()}
	if u != nil && u.CachedTokens != nil {
		all.CacheRead = &cached
	}
	if u != nil && u.ReasoningTokens != nil {
		all.Details = &usageDetails{u.GetReasoningTokens()}
	}
	return all
}

// whole encodes the answer as one body.
func (m *message) whole() call.Gatherer {
	return call.Gather(m.request, func(started *llmv1.Started, all []call.Choice, end *llmv1.End) []byte {
		a, got := m.newAnswer(started, end.GetUsage()), &all[0]
		if reasoning := got.Reasoning(); reasoning != "" {
			if m.hideThinking {
				reasoning = ""
			}
			a.Content = append(a.Content, thinkingBlock{string(thinking), reasoning, signatureOf(started)})
		}
		calls := got.Calls()
		if words := got.Text(); words != "" && (len(calls) == 0 || strings.TrimSpace(words) != "") {
			a.Content = append(a.Content, textBlock{string(text), words})
		}
		for _, made := range calls {
			a.Content = append(a.Content, toolUseBlock{string(toolUse), made.GetId(), made.GetName(), inputOf(made)})
		}
		a.stop = stopOf(end)
		return marshal(a)
	})
}

// invalidInput is the member that holds arguments that are not a JSON object. Anthropic's
// documentation suggests the name to clients that send such arguments back.
const invalidInput = "INVALID_JSON"

// inputOf returns the arguments of a call. A model may be cut off in the middle of the arguments,
// and a model that is not guided may write anything. Such arguments become an object with the
// member invalidInput, because an input must be an object, also in the client's next request.
func inputOf(made *chatv1.ToolCall) json.RawMessage {
	arguments := bytes.TrimSpace([]byte(made.GetArguments()))
	switch {
	case len(arguments) == 0:
		return json.RawMessage("{}")
	case arguments[0] != '{' || !json.Valid(arguments):
		return marshal(map[string]string{invalidInput: made.GetArguments()})
	}
	return arguments
}
