// Package openai is the OpenAI JSON of api-service: it parses request bodies, and encodes chunks,
// completions and lists. Only this package and conversation, which parses the part of requests that
// templates see, know this JSON.
//
// A field with a wrong type or out of range is refused with an error that names it, and so is a
// field that changes what the answer means and cannot be honoured. All other fields that cannot be
// honoured are left out, and the strict.Reading collects their names.
package openai

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/api-service/openai/conversation"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Chat is a body of POST /v1/chat/completions, or of /v1/completions.
type Chat struct {
	Request      *chatv1.ChatRequest
	Stream       bool
	IncludeUsage bool
	Timeout      time.Duration // maximum duration of the answer; 0 means no limit
	completion   bool          // the body has a prompt
	in           *strict.Reading
	writer       *chunkWriter // the last encoder of events; nil before
	// defaultTokens reports that the number of tokens is the default of completions.
	defaultTokens bool
	unlimited     bool    // the body says that the number of tokens has no limit
	maxTokens     string  // name of the field that set the number of tokens
	bestOf        int64   // 0 if absent
	logprobs      bool    // of chats
	topLogprobs   *uint32 // of chats
	guide         string  // name of the field that asks for a guide
	session       string  // name of the field that identifies the conversation
	images        []image.Source
	tokenIDs      bool   // the answer has token ids
	idNames       bool   // of completions: tokens in logprobs are named by their ids
	id            string // the stream's id; "" if the body has none
	counts        bool   // each chunk has the usage so far
	tiered        bool   // the answer names its tier, because the request has one

	tools      conversation.Tools
	older      bool            // the tools are functions in the older form, and so are calls
	choice     json.RawMessage // the tool choice, until the tools are known
	choiceName string          // the field of choice
}

// A setter parses one field; raw is not null.
type setter = strict.Setter[*Chat]

// shared are the fields of both kinds of bodies.
var shared = strict.Table[*Chat]{Honoured: map[string]setter{
	"model": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.Request.Model, err = text(param, raw)
		return err
	},
	"stream": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.Stream, err = boolean(param, raw)
		return err
	},
	"stream_options": setStreamOptions,
	"max_tokens":     setMaxTokens,
	"stop": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.Request.Stop, err = strict.Stops(param, raw)
		return err
	},
	"logit_bias":  setLogitBias,
	"temperature": float(0, 2, func(s *llmv1.Sampling, v float32) { s.Temperature = &v }),
	"top_p": float(0, 1, func(s *llmv1.Sampling, v float32) {
		if v == 0 {
			v = math.SmallestNonzeroFloat32 // "keep nothing" can only mean the most likely token
		}
		s.TopP = &v
	}),
	"frequency_penalty": float(-2, 2, func(s *llmv1.Sampling, v float32) { s.FrequencyPenalty = &v }),
	"presence_penalty":  float(-2, 2, func(s *llmv1.Sampling, v float32) { s.PresencePenalty = &v }),
	"seed": func(c *Chat, param string, raw json.RawMessage) error {
		v, err := integer(param, raw, math.MinInt64, math.MaxInt64)
		seed := uint64(v)
		c.Request.Sampling.Seed = &seed
		return err
	},

	"tools":       setTools,
	"tool_choice": setToolChoice,
	"parallel_tool_calls": func(c *Chat, param string, raw json.RawMessage) error {
		v, err := boolean(param, raw)
		c.Request.ParallelToolCalls = &v
		return err
	},
	"response_format":  setResponseFormat,
	"reasoning_effort": setReasoningEffort,

	// Not in OpenAI's API; other services and servers use these names.
	"reasoning":          setReasoning,
	"enable_thinking":    setEnableThinking,
	"thinking":           setThinking,
	"think":              setThink,
	"structured_outputs": setStructuredOutputs,
	"guided_json":        guided("json"),
	"guided_json_object": guided("json_object"),
	"guided_choice":      guided("choice"),
	"guided_regex":       guided("regex"),
	"guided_grammar":     guided("grammar"),
	"json_schema":        guided("json"),
	"regex":              guided("regex"),
	"grammar":            guided("grammar"),
	"ebnf":               guided("grammar"),
	"structural_tag":     guided("structural_tag"),
	"request_id":         setID,
	"rid":                setID,

	// Not in OpenAI's API; vLLM and SGLang use these names.
	"chat_template_kwargs": setTemplateKwargs,
	"separate_reasoning": func(c *Chat, param string, raw json.RawMessage) error {
		v, err := boolean(param, raw)
		c.Request.SeparateReasoning = &v
		return err
	},
	"min_p": float(0, 1, func(s *llmv1.Sampling, v float32) { s.MinP = &v }),
	"repetition_penalty": func(c *Chat, param string, raw json.RawMessage) error {
		v, err := number(param, raw, -math.MaxFloat32, math.MaxFloat32)
		if err == nil && v == 0 && !c.in.Refuses() {
			return nil
		}
		if err == nil && v <= 0 {
			return streamerr.InvalidParam(param, "%s is %v; it must be over 0", param, v)
		}
		c.Request.Sampling.RepetitionPenalty = &v
		return err
	},
	"top_k": func(c *Chat, param string, raw json.RawMessage) error {
		v, err := integer(param, raw, -1, math.MaxInt32)
		k := uint32(max(v, 0)) // -1 and 0 both keep all tokens
		c.Request.Sampling.TopK = &k
		return err
	},
	"min_tokens": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.Request.Sampling.MinTokens, err = count(param, raw, 0)
		return err
	},
	"ignore_eos": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.Request.Sampling.IgnoreEos, err = boolean(param, raw)
		return err
	},
	"service_tier": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.Request.Claim, err = claim(c.in, param, raw)
		c.tiered = c.Request.GetClaim() != nil
		return err
	},
	"stop_token_ids": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.Request.Sampling.StopTokenIds, err = strict.IDs(param, raw)
		return err
	},
	"include_stop_str_in_output": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.Request.IncludeStop, err = boolean(param, raw)
		return err
	},
	"skip_special_tokens": func(c *Chat, param string, raw json.RawMessage) error {
		skip, err := boolean(param, raw)
		c.Request.KeepSpecial = err == nil && !skip
		return err
	},
	"spaces_between_special_tokens": func(c *Chat, param string, raw json.RawMessage) error {
		v, err := boolean(param, raw)
		if err == nil && !v {
			err = c.in.Unsupported(param)
		}
		return err
	},
	"return_token_ids": setTokenIDs,

	// Not in OpenAI's API; several gateways use this name. In seconds.
	"timeout": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.Timeout, err = timeout(c.in, param, raw)
		return err
	},

	"n": func(c *Chat, param string, raw json.RawMessage) error {
		if strict.Empty(raw) && !c.in.Refuses() {
			return nil
		}
		v, err := integer(param, raw, 1, 128)
		c.Request.N = uint32(v)
		return err
	},

	"user": setSession,
},
	Hints: []string{"enable_thinking", "reasoning", "reasoning_effort", "request_id", "rid", "service_tier", "think", "thinking", "user"},
	Ignored: []string{
		"metadata", "store", "safety_identifier", "prompt_cache_retention", "prompt_cache_options", "verbosity",
		"guided_decoding_backend", "guided_whitespace_pattern", "cache_prompt", "include_reasoning", "keep_alive", "use_cache", "usage",
	},
	Unsupported: []string{
		"prediction", "web_search_options", "moderation", "priority", "cache_salt", "prompt_logprobs", "truncate_prompt_tokens", "use_beam_search", "length_penalty",
		"kv_transfer_params", "mm_processor_kwargs", "add_special_tokens", "vllm_xargs", "lora_path", "provider", "models", "route", "transforms", "plugins",
	},
	Refused: map[string]string{
		"allowed_token_ids": "limits the tokens of the answer, which no worker here can enforce",
		"bad_words":         "forbids words, which no worker here can enforce",
	},
}

// chatFields are the fields of chats.
var chatFields = shared.And(strict.Table[*Chat]{Honoured: map[string]setter{
	"messages":              setMessages,
	"max_completion_tokens": setMaxTokens,
	"logprobs": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.logprobs, err = boolean(param, raw)
		return err
	},
	"top_logprobs": func(c *Chat, param string, raw json.RawMessage) error {
		v, err := integer(param, raw, 0, maxLogprobs)
		c.topLogprobs = new(uint32(v))
		return err
	},
	"prompt_cache_key": setSession,
	"functions":        setFunctions,
	"function_call":    setFunctionCall,
	"modalities":       setModalities,

	// Not in OpenAI's API; vLLM uses these names.
	"add_generation_prompt": func(c *Chat, param string, raw json.RawMessage) error {
		add, err := boolean(param, raw)
		c.Request.NoGenerationPrompt = err == nil && !add
		return err
	},
	"continue_final_message": func(c *Chat, param string, raw json.RawMessage) (err error) {
		c.Request.ContinueMessage, err = boolean(param, raw)
		return err
	},
},
	Hints: []string{"prompt_cache_key"},
	// An answer in audio is asked for by modalities; audio has its voice.
	Unsupported: []string{"audio", "echo", "return_tokens_as_token_ids"},
	Refused: map[string]string{
		"chat_template": "replaces the template of the model, which requests cannot do here",
		"documents":     "are texts that the chat templates here do not show to the model",
	},
})

// ChatFields returns how each field of chat completions is treated: honoured, ignored or refused.
func ChatFields() map[string]string { return chatFields.Fields() }

// CompletionFields returns how each field of completions is treated.
func CompletionFields() map[string]string { return completionFields.Fields() }

// ParseChat parses a body of chat completions. Its errors are *streamerr.Error with reason INVALID, whose Param is the invalid field.
func ParseChat(body []byte, in *strict.Reading) (*Chat, error) {
	fields, err := strict.Fields(body)
	if err != nil {
		return nil, err
	}
	defer strict.Recycle(fields)
	return parseChat(fields, false, in)
}

// ParseStream parses a body of either kind, and streams its answer whatever the body says. A body
// with a prompt is a completion.
func ParseStream(body []byte, in *strict.Reading) (*Chat, error) {
	fields, err := strict.Fields(body)
	if err != nil {
		return nil, err
	}
	defer strict.Recycle(fields)
	parse := parseChat
	if prompt, ok := fields["prompt"]; ok && !strict.Null(prompt) {
		if messages, ok := fields["messages"]; ok && !strict.Empty(messages) {
			return nil, streamerr.InvalidParam("messages", "the request has both messages and a prompt; leave one of them out")
		}
		parse = parseCompletion
	}
	c, err := parse(fields, true, in)
	switch {
	case err != nil:
		return nil, err
	case c.tokenIDs:
		return nil, unsupported("return_token_ids", "return_token_ids is not supported here: the events of a kept stream have no token ids")
	case !c.Stream:
		return nil, streamerr.InvalidParam("stream", "stream is false, but the answer is always streamed here; leave it out")
	}
	return c, err
}

// ParsePrompt parses the fields of a chat without its model, for its prompt. The images of the
// conversation have not been fetched yet.
func ParsePrompt(fields map[string]json.RawMessage, in *strict.Reading) (*chatv1.ChatRequest, []image.Source, error) {
	c := newChat(in)
	if err := chatFields.Parse(fields, c, in); err != nil {
		return nil, nil, err
	}
	return c.Request, c.images, c.chooseTools()
}

func newChat(in *strict.Reading) *Chat {
	return &Chat{Request: &chatv1.ChatRequest{Sampling: &llmv1.Sampling{}}, in: in}
}

func parseChat(fields map[string]json.RawMessage, stream bool, in *strict.Reading) (*Chat, error) {
	c := newChat(in)
	c.Stream = stream
	if err := c.set(fields, &chatFields); err != nil {
		return nil, err
	}
	switch {
	case len(c.Request.GetMessages()) == 0:
		return nil, streamerr.InvalidParam("messages", "messages is missing or empty").WithCode(streamerr.CodeMissing)
	case c.topLogprobs != nil && *c.topLogprobs > 0 && !c.logprobs && in.Refuses():
		return nil, streamerr.InvalidParam("top_logprobs", "top_logprobs is only allowed when logprobs is true")
	case c.topLogprobs != nil && *c.topLogprobs > 0 && !c.logprobs:
		in.Ignore("top_logprobs")
	case c.logprobs && c.topLogprobs == nil:
		c.topLogprobs = new(uint32)
	}
	if c.logprobs {
		c.Request.Sampling.Logprobs = c.topLogprobs
	}
	return c, nil
}

// set parses the fields, and makes the checks that both kinds of bodies need.
func (c *Chat) set(fields map[string]json.RawMessage, table *strict.Table[*Chat]) error {
	if err := table.Parse(fields, c, c.in); err != nil {
		return err
	}
	switch {
	case c.Request.GetModel() == "":
		return streamerr.InvalidParam("model", "model is missing").WithCode(streamerr.CodeMissing)
	case c.IncludeUsage && !c.Stream && c.in.Refuses():
		return streamerr.InvalidParam("stream_options", "stream_options is only allowed when stream is true")
	}
	return c.chooseTools()
}

// Param converts a field name of the IDL, which an inner hop uses in its errors, to its name in the
// body.
func (c *Chat) Param(inner string) string {
	name := strings.TrimPrefix(inner, "sampling.")
	switch name {
	case "max_tokens":
		if c.maxTokens != "" {
			return c.maxTokens
		}
	case "prompt":
		if !c.completion {
			return "messages"
		}
	case "logprobs":
		if !c.completion && c.Request.GetSampling().GetLogprobs() > 0 {
			return "top_logprobs"
		}
	case "images":
		return "messages"
	case "no_generation_prompt":
		return "add_generation_prompt"
	case "template_variables":
		return "chat_template_kwargs"
	case "session":
		return c.session
	case "guide":
		if c.guide != "" {
			return c.guide
		}
	case "tool_choice":
		return cmp.Or(c.choiceName, name)
	}
	if rest, ok := strings.CutPrefix(name, "tools"); ok && c.older {
		return "functions" + rest
	}
	return conversation.Param(name)
}

// claim parses service_tier. A tier of another service is left out.
func claim(in *strict.Reading, param string, raw json.RawMessage) (*llmv1.Claim, error) {
	word, err := text(param, raw)
	if err != nil || word == "" {
		return nil, err
	}
	tier, err := keys.ParseTier(word)
	switch {
	case err == nil:
		return &llmv1.Claim{Tier: tier}, nil
	case in.Refuses():
		return nil, streamerr.InvalidParam(param, "%s is \"%s\"; it must be auto, default, flex or priority", param, printable(word))
	default:
		in.Ignore(param)
		return nil, nil
	}
}

// setID parses the id of the stream. An invalid id is left out.
func setID(c *Chat, param string, raw json.RawMessage) error {
	id, err := text(param, raw)
	switch {
	case err != nil:
		return err
	case stream.ValidID(id):
		c.id = id
	case id != "":
		return c.in.Unsupported(param)
	}
	return nil
}

func unsupported(param, format string, args ...any) error {
	return streamerr.InvalidParam(param, format, args...).WithCode(streamerr.CodeUnsupportedValue)
}

func setModalities(_ *Chat, param string, raw json.RawMessage) error {
	var v []string
	if json.Unmarshal(raw, &v) != nil {
		return mismatch(param, "an array of strings", raw)
	}
	if slices.ContainsFunc(v, func(s string) bool { return !strings.EqualFold(s, "text") }) {
		return unsupported(param, `modalities must be ["text"]`)
	}
	return nil
}

// setStreamOptions parses the options of a stream. include_obfuscation, which is padding against
// eavesdroppers, has no effect on an answer.
func setStreamOptions(c *Chat, param string, raw json.RawMessage) error {
	options, err := c.in.Members(param, raw, "include_usage", "continuous_usage_stats", "include_obfuscation")
	if err != nil {
		return err
	}
	for name, to := range map[string]*bool{"include_usage": &c.IncludeUsage, "continuous_usage_stats": &c.counts} {
		if raw, ok := options[name]; ok {
			if *to, err = boolean(param+"."+name, raw); err != nil {
				return err
			}
		}
	}
	return nil
}
