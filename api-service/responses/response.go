package responses

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/whence-dev/whence/api-service/jsontext"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// settings are the fields of its request that a response repeats. Clients require numbers of
// sampling: those that the request does not set are the API's defaults.
type settings struct {
	Background         bool              `json:"background"`
	FrequencyPenalty   float32           `json:"frequency_penalty"`
	Instructions       *string           `json:"instructions"`
	MaxOutputTokens    *uint32           `json:"max_output_tokens"`
	MaxToolCalls       *uint32           `json:"max_tool_calls"`
	Metadata           map[string]string `json:"metadata"`
	ParallelToolCalls  bool              `json:"parallel_tool_calls"`
	PresencePenalty    float32           `json:"presence_penalty"`
	PreviousResponseID *string           `json:"previous_response_id"`
	PromptCacheKey     *string           `json:"prompt_cache_key"`
	Reasoning          reasoningSettings `json:"reasoning"`
	SafetyIdentifier   *string           `json:"safety_identifier"`
	Temperature        float32           `json:"temperature"`
	Text               textSettings      `json:"text"`
	ToolChoice         json.RawMessage   `json:"tool_choice"`
	Tools              []json.RawMessage `json:"tools"`
	TopLogprobs        uint32            `json:"top_logprobs"`
	TopP               float32           `json:"top_p"`
	Truncation         string            `json:"truncation"`
	User               *string           `json:"user"`
}

type reasoningSettings struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"` // always null: no summaries are made
}

type textSettings struct {
	Format    json.RawMessage `json:"format"`
	Verbosity string          `json:"verbosity"`
}

// defaults returns the settings of an empty request.
func defaults() settings {
	return settings{
		Metadata: map[string]string{}, ParallelToolCalls: true, Text: textSettings{json.RawMessage(`{"type":"text"}`), "medium"},
		ToolChoice: json.RawMessage(`"auto"`), Tools: []json.RawMessage{}, Truncation: "disabled", Temperature: 1, TopP: 1,
	}
}

// members returns the settings as members of an object, each with a comma before it.
func (s *settings) members() []byte {
	b := marshal(s)
	b[0] = ','
	return b[:len(b)-1]
}

// A usage counts tokens. Clients require the details: reasoning_tokens is 0 if reasoning is not
// counted, and cached_tokens is 0 if the engine does not say it.
type usage struct {
	Input         uint32        `json:"input_tokens"`
	InputDetails  inputDetails  `json:"input_tokens_details"`
	Output        uint32        `json:"output_tokens"`
	OutputDetails outputDetails `json:"output_tokens_details"`
	Total         uint32        `json:"total_tokens"`
	Estimated     bool          `json:"estimated,omitempty"` // as in the other APIs
}

type inputDetails struct {
	Cached     uint32 `json:"cached_tokens"`
	CacheWrite uint32 `json:"cache_write_tokens"` // 0: nothing is charged for it
}

type outputDetails struct {
	Reasoning uint32 `json:"reasoning_tokens"`
}

func usageOf(u *llmv1.Usage) *usage {
	return &usage{
		Input: u.GetPromptTokens(), InputDetails: inputDetails{Cached: u.GetCachedTokens()},
		Output: u.GetCompletionTokens(), OutputDetails: outputDetails{u.GetReasoningTokens()},
		Total: u.GetPromptTokens() + u.GetCompletionTokens(), Estimated: u.GetEstimated(),
	}
}

// A result is the part of a response that changes while the response is generated. The zero value
// is the result of a response in progress.
type result struct {
	completedAt *int64
	problem     *problem
	incomplete  *incompleteDetails
	usage       *usage
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

// A problem is the error of a response that failed.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// resultOf returns the status and the result of a response that has ended.
func resultOf(end *llmv1.End, endedAt func() time.Time) (status, result) {
	r := result{usage: usageOf(end.GetUsage())}
	switch end.GetFinish() {
	case llmv1.Finish_FINISH_LENGTH:
		r.incomplete = &incompleteDetails{"max_output_tokens"}
		return incomplete, r
	case llmv1.Finish_FINISH_CONTENT_FILTER:
		r.incomplete = &incompleteDetails{"content_filter"}
		return incomplete, r
	default:
		r.completedAt = new(endedAt().Unix())
		return completed, r
	}
}

// tiers are the service tiers in OpenAI's spelling.
var tiers = map[llmv1.Tier]string{llmv1.Tier_TIER_FLEX: "flex", llmv1.Tier_TIER_PRIORITY: "priority"}

// AppendResponse appends the current response object.
func (e *Encoder) AppendResponse(b []byte) []byte {
	with, r := e.status, e.result
	tier, ok := tiers[e.request.GetClaim().GetTier()]
	if !ok {
		tier = "default"
	}
	b = jsontext.String(append(b, `{"id":`...), "resp_"+e.stream)
	b = append(b, `,"object":"response","created_at":`...)
	b = strconv.AppendInt(b, e.created, 10)
	b = append(append(append(b, `,"status":"`...), with...), '"')
	b = append(append(b, `,"completed_at":`...), marshal(r.completedAt)...)
	b = append(append(b, `,"error":`...), marshal(r.problem)...)
	b = append(append(b, `,"incomplete_details":`...), marshal(r.incomplete)...)
	b = jsontext.String(append(b, `,"model":`...), e.model)
	b = e.AppendItems(append(b, `,"output":`...))
	b = append(append(append(b, `,"service_tier":"`...), tier...), '"')
	b = append(append(b, `,"usage":`...), marshal(r.usage)...)
	b = strconv.AppendBool(append(b, `,"store":`...), e.stores)
	return append(append(b, e.repeated...), '}')
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: structs of strings, numbers and valid JSON
	}
	return b
}
