package openai

import (
	"cmp"
	"encoding/json"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/answer"
)

// Done is the data of the last event of a stream that completed.
const Done = "[DONE]"

// finishes are the finish reasons of OpenAI's API.
var finishes = map[llmv1.Finish]string{
	llmv1.Finish_FINISH_STOP:           "stop",
	llmv1.Finish_FINISH_LENGTH:         "length",
	llmv1.Finish_FINISH_TOOL_CALLS:     "tool_calls",
	llmv1.Finish_FINISH_CONTENT_FILTER: "content_filter",
}

// Finish returns the finish reason in OpenAI's spelling.
func Finish(finish llmv1.Finish) string {
	if word, ok := finishes[finish]; ok {
		return word
	}
	return "stop"
}

// A usage is the usage object.
type usage struct {
	PromptTokens     uint32             `json:"prompt_tokens"`
	CompletionTokens uint32             `json:"completion_tokens"`
	TotalTokens      uint32             `json:"total_tokens"`
	PromptDetails    *promptDetails     `json:"prompt_tokens_details,omitempty"`
	Details          *completionDetails `json:"completion_tokens_details,omitempty"`
	Estimated        bool               `json:"estimated,omitempty"` // the server that generates has not reported the counts
}

// completionDetails is present only if reasoning is counted.
type completionDetails struct {
	ReasoningTokens uint32 `json:"reasoning_tokens"`
}

// promptDetails is present only if the engine says how many tokens it had cached.
type promptDetails struct {
	CachedTokens uint32 `json:"cached_tokens"`
}

func usageOf(u *llmv1.Usage) *usage {
	all := &usage{
		PromptTokens:     u.GetPromptTokens(),
		CompletionTokens: u.GetCompletionTokens(),
		TotalTokens:      u.GetPromptTokens() + u.GetCompletionTokens(),
		Estimated:        u.GetEstimated(),
	}
	if u != nil && u.CachedTokens != nil {
		all.PromptDetails = &promptDetails{u.GetCachedTokens()}
	}
	if u != nil && u.ReasoningTokens != nil {
		all.Details = &completionDetails{u.GetReasoningTokens()}
	}
	return all
}

// Usage returns the usage object.
func Usage(u *llmv1.Usage) []byte { return marshal(usageOf(u)) }

// completionID returns the id of an answer, which is derived from the stream's id.
func completionID(stream string) string { return chatPrefix + stream }

type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage"`
	Tier    string   `json:"service_tier,omitempty"`

	PromptTokenIDs []uint32 `json:"prompt_token_ids,omitempty"` // as in vLLM
}

// tiers are the names of tiers in answers.
var tiers = map[llmv1.Tier]string{llmv1.Tier_TIER_FLEX: "flex", llmv1.Tier_TIER_PRIORITY: "priority"}

// tier returns the tier that the stream has got, or "" if the request has no service_tier.
func (c *Chat) tier() string {
	if !c.tiered {
		return ""
	}
	return cmp.Or(tiers[c.Request.GetClaim().GetTier()], "default")
}

type choice struct {
	Index        int           `json:"index"`
	Message      answerMessage `json:"message"`
	LogProbs     *Logprobs     `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
	TokenIDs     []uint32      `json:"token_ids,omitempty"` // as in vLLM
}

type answerMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`

	FunctionCall *functionCall `json:"function_call,omitempty"` // the form before tool calls
}

// messageOf returns the message of an answer. A message with only tool calls has no content.
func (f *callForms) messageOf(all *answer.Answer) answerMessage {
	text := all.Text()
	m := answerMessage{Role: "assistant", Content: &text, Reasoning: all.Reasoning(), ToolCalls: f.toolCallsOf(all.Calls())}
	if text == "" && len(m.ToolCalls) > 0 {
		m.Content = nil
	}
	if f.older && len(m.ToolCalls) > 0 {
		m.FunctionCall, m.ToolCalls = m.ToolCalls[0].Function, nil
	}
	return m
}

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`

	// Not OpenAI's.
	ContextLength uint32       `json:"context_length"`
	MaxModelLen   uint32       `json:"max_model_len"`    // the same, as in vLLM
	Parent        string       `json:"parent,omitempty"` // the base model of an adapter, as in vLLM
	Aliases       []string     `json:"aliases,omitempty"`
	Sampling      []string     `json:"sampling,omitempty"` // fields that are honoured
	Embeddings    bool         `json:"embeddings,omitempty"`
	Scores        bool         `json:"scores,omitempty"`
	Generates     *bool        `json:"generates,omitempty"` // false: chats and completions are refused
	Images        bool         `json:"images,omitempty"`    // whether requests may have images
	Workers       modelWorkers `json:"workers"`
	// What the chat template writes; the rest is elsewhere in prompts.
	Template *modelTemplate `json:"template,omitempty"`
}

type modelTemplate struct {
	System    []string  `json:"system"`              // places of system texts that are turns
	Developer []string  `json:"developer,omitempty"` // places of the role developer
	Calls     bool      `json:"calls"`
	Images    []string  `json:"images,omitempty"`   // roles
	Efforts   *[]string `json:"efforts,omitempty"`  // values of reasoning_effort; nil means any
	Switches  []string  `json:"switches,omitempty"` // variables that turn thinking off
	// The rest is as in whence.chat.v1.ChatTemplate.
	Tools            bool       `json:"tools,omitempty"`
	TextArguments    bool       `json:"text_arguments,omitempty"`
	NoContent        bool       `json:"no_content,omitempty"`
	IDs              string     `json:"ids,omitempty"`
	Reasoning        string     `json:"reasoning,omitempty"`
	OneCall          bool       `json:"one_call,omitempty"`
	Text             modelTexts `json:"text,omitzero"`
	WrittenCall      string     `json:"written_call,omitempty"`
	WrittenReasoning string     `json:"written_reasoning,omitempty"`
	ToolFormat       string     `json:"tool_format,omitempty"`
	ToolProblem      string     `json:"tool_problem,omitempty"`
	ReasoningTags    []string   `json:"reasoning_tags,omitempty"`
}

// modelTexts are what becomes of texts beside calls.
type modelTexts struct {
	Latest          string `json:"latest,omitempty"`
	Earlier         string `json:"earlier,omitempty"`
	Reasoned        string `json:"reasoned,omitempty"`
	EarlierReasoned string `json:"earlier_reasoned,omitempty"`
}

// templateOf returns the JSON of a model's chat template, or nil if the chat-service says nothing.
func templateOf(t *chatv1.ChatTemplate) *modelTemplate {
	if t == nil {
		return nil
	}
	m := &modelTemplate{
		System: append([]string{}, t.GetSystem()...), Developer: t.GetDeveloper(), Calls: t.GetCalls(), Images: t.GetImages(), Switches: t.GetSwitches(),
		Tools: t.GetTools(), TextArguments: t.GetTextArguments(), NoContent: t.GetNoContent(), IDs: t.GetIds(), Reasoning: t.GetReasoning(), OneCall: t.GetOneCall(),
		Text:        modelTexts{t.GetText().GetLatest(), t.GetText().GetEarlier(), t.GetText().GetReasoned(), t.GetText().GetEarlierReasoned()},
		WrittenCall: t.GetWrittenCall(), WrittenReasoning: t.GetWrittenReasoning(),
		ToolFormat: t.GetToolFormat(), ToolProblem: t.GetToolProblem(), ReasoningTags: t.GetReasoningTags(),
	}
	if t.GetLimitsEfforts() {
		m.Efforts = new(append([]string{}, t.GetEfforts()...))
	}
	return m
}

type modelWorkers struct {
	Healthy uint32 `json:"healthy"`
	Known   uint32 `json:"known"`
	Problem string `json:"problem,omitempty"` // why no worker is healthy
}

func modelOf(m *chatv1.Model) model {
	var generates *bool
	if m.GetPoolsOnly() {
		generates = new(bool)
	}
	return model{
		ID: m.GetId(), Object: "model", Created: m.GetCreated(), OwnedBy: m.GetOwnedBy(), ContextLength: m.GetContextLength(), MaxModelLen: m.GetContextLength(),
		Parent: m.GetParent(), Aliases: m.GetAliases(), Sampling: m.GetSampling(), Embeddings: m.GetEmbeds(), Scores: m.GetScores(), Generates: generates, Images: m.GetImages(), Workers: modelWorkers{m.GetHealthyWorkers(), m.GetKnownWorkers(), m.GetProblem()}, Template: templateOf(m.GetTemplate()),
	}
}

// Models returns the body of GET /v1/models.
func Models(models []*chatv1.Model) []byte {
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", make([]model, 0, len(models))}
	for _, m := range models {
		list.Data = append(list.Data, modelOf(m))
	}
	return marshal(list)
}

// Model returns the body of GET /v1/models/{id}.
func Model(m *chatv1.Model) []byte { return marshal(modelOf(m)) }

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: structs of strings and numbers
	}
	return b
}
