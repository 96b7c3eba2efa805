package responses

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/responses/conversation"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/api-service/transcript"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// summarise asks the model for the summary that replaces a conversation.
const summarise = "Do not continue the conversation now. Write a summary of it instead. The summary replaces the conversation: whoever continues sees nothing else. " +
	"Say what the user has asked for, in the user's words where they matter; which facts, decisions, names, paths and values are still needed; " +
	"what has been done, with which results; and what is to be done next. Write only the summary."

// ParseCompact parses a body of POST /v1/responses/compact. The call asks the model for a summary of
// the conversation, and the answer is an item that has the summary.
func ParseCompact(text []byte, in *strict.Reading) (*call.Call, error) {
	r := newBody(false, in)
	r.compacts = true
	if err := r.parse(text); err != nil {
		return nil, err
	}
	r.request.Tools, r.toolOrigins, r.request.ToolChoice, r.request.Sampling.Guide = nil, nil, nil, nil
	c := r.call()
	c.Stream, c.Store, c.Failure, c.Done = false, nil, nil, nil
	c.Whole = func() call.Gatherer { return call.Gather(r.request, r.compacted) }
	return c, nil
}

// askForSummary appends the request for a summary to the conversation.
func (r *body) askForSummary() {
	r.request.Messages = append(r.request.Messages, &chatv1.Message{Role: "user", Content: summarise})
	r.origins = append(r.origins, transcript.Origin{At: "input"})
}

// compacted returns the answer to a request for a summary. If the model has written no whole summary,
// the conversation stays as it is.
func (r *body) compacted(started *llmv1.Started, all []call.Choice, end *llmv1.End) []byte {
	output := slices.Concat(r.earlier, conversation.Items(r.input))
	if text := all[0].Text(); text != "" && all[0].Finish != llmv1.Finish_FINISH_LENGTH {
		output = []json.RawMessage{marshal(struct {
			ID        string `json:"id"`
			Type      string `json:"type"`
			Encrypted string `json:"encrypted_content"`
		}{"cmp_" + started.GetStreamId() + "_0", "compaction", conversation.Encrypt(text)})}
	}
	return marshal(struct {
		ID      string            `json:"id"`
		Object  string            `json:"object"`
		Created int64             `json:"created_at"`
		Output  []json.RawMessage `json:"output"`
		Usage   *usage            `json:"usage"`
	}{IDPrefix + started.GetStreamId(), "response.compaction", time.Now().Unix(), output, usageOf(end.GetUsage())})
}

// ParseCount parses a body of POST /v1/responses/input_tokens. The model may be missing.
func ParseCount(text []byte, in *strict.Reading) (*call.Call, error) {
	r := newBody(false, in)
	r.counts = true
	if err := r.parse(text); err != nil {
		return nil, err
	}
	return r.call(), nil
}

// Tokenize returns the request for the tokens of a call of ParseCount.
func Tokenize(c *call.Call) (*chatv1.TokenizeRequest, error) {
	if len(c.Images) > 0 {
		return nil, image.Uncounted(c.Images[0])
	}
	r := c.Request
	return &chatv1.TokenizeRequest{
		Model: r.GetModel(), Messages: r.GetMessages(), AddGenerationPrompt: true,
		Tools: r.GetTools(), ToolChoice: r.GetToolChoice(), TemplateVariables: r.GetTemplateVariables(),
	}, nil
}

// Counted returns the answer to a request of ParseCount.
func Counted(resp *chatv1.TokenizeResponse) []byte {
	return marshal(struct {
		Object string `json:"object"`
		Input  int    `json:"input_tokens"`
	}{"response.input_tokens", len(resp.GetIds())})
}
