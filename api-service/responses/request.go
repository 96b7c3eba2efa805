// Package responses is the JSON of OpenAI's Responses API: it parses request bodies, and encodes
// events, responses and their errors.
//
// Fields are read as in package openai; the tables in this package list them, and
// docs/reference/fields.md prints the tables.
package responses

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/api-service/responses/conversation"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/api-service/transcript"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A body is a body of POST /v1/responses.
type body struct {
	request  *chatv1.ChatRequest
	stream   bool
	storage  // whether and how the response is stored
	in       *strict.Reading
	encrypts bool // reasoning items have an encrypted_content
	compacts bool // the body asks for a summary of the conversation
	counts   bool // the body asks for the number of tokens

	instructions string              // until parse adds it to the messages of request
	origins      []transcript.Origin // for each message of request, the field that it comes from
	images       []image.Source      // of the messages
	references   []string            // ids of the items that input only names
	allowed      []string            // names of the tools that tool_choice allows; nil means all
	offers       []conversation.Offer
	offering     bool                // the tools that are being parsed are those of offers
	taken        map[string]bool     // names of tools
	functions    map[string]function // custom tools and those of namespaces, by the names that the model knows
	toolOrigins  []string            // for each tool of request, the field that it comes from
	guide        string              // name of the field that asks for a guide
	session      string              // name of the field that identifies the conversation
	logprobs     string              // name of the field that asks for log-probabilities

	memo     *Memo    // of a stored response, until it has been encoded
	settings settings // the fields of the request that the response repeats
	repeated []byte   // settings as members of the response, each with a comma before it

	encoder *Encoder // of the stream's events
}

type setter = strict.Setter[*body]

var fields = strict.Table[*body]{
	Honoured: map[string]setter{
		"model": func(r *body, param string, raw json.RawMessage) (err error) {
			r.request.Model, err = strict.String(param, raw)
			return err
		},
		"input": func(r *body, param string, raw json.RawMessage) error {
			r.input = raw
			c, err := conversation.Parse(r.in, param, raw)
			if err == nil {
				r.converse(c)
			}
			return err
		},
		"instructions": func(r *body, param string, raw json.RawMessage) (err error) {
			r.instructions, err = strict.String(param, raw)
			r.settings.Instructions = &r.instructions
			return err
		},
		"stream": func(r *body, param string, raw json.RawMessage) (err error) {
			r.stream, err = strict.Boolean(param, raw)
			return err
		},
		"stream_options": setStreamOptions,
		"max_output_tokens": func(r *body, param string, raw json.RawMessage) (err error) {
			r.request.Sampling.MaxTokens, err = limit(param, raw)
			r.settings.MaxOutputTokens = r.request.GetSampling().MaxTokens
			return err
		},
		// This field counts calls of tools that OpenAI's servers run. There are none here.
		"max_tool_calls": func(r *body, param string, raw json.RawMessage) (err error) {
			r.settings.MaxToolCalls, err = limit(param, raw)
			return err
		},
		"temperature": func(r *body, param string, raw json.RawMessage) error {
			v, err := strict.Number(param, raw, 0, 2)
			r.request.Sampling.Temperature, r.settings.Temperature = &v, v
			return err
		},
		"top_p": func(r *body, param string, raw json.RawMessage) error {
			v, err := strict.Number(param, raw, 0, 1)
			r.settings.TopP = v
			if v == 0 {
				v = math.SmallestNonzeroFloat32 // "keep nothing" can only mean the most likely token
			}
			r.request.Sampling.TopP = &v
			return err
		},
		"top_logprobs": setTopLogprobs,
		"include":      setInclude,
		"tools":        setTools,
		"tool_choice":  setToolChoice,
		"frequency_penalty": func(r *body, param string, raw json.RawMessage) error {
			v, err := strict.Number(param, raw, -2, 2)
			r.request.Sampling.FrequencyPenalty, r.settings.FrequencyPenalty = &v, v
			return err
		},
		"presence_penalty": func(r *body, param string, raw json.RawMessage) error {
			v, err := strict.Number(param, raw, -2, 2)
			r.request.Sampling.PresencePenalty, r.settings.PresencePenalty = &v, v
			return err
		},
		"parallel_tool_calls": func(r *body, param string, raw json.RawMessage) error {
			v, err := strict.Boolean(param, raw)
			r.request.ParallelToolCalls, r.settings.ParallelToolCalls = &v, v
			return err
		},
		"text":      setText,
		"reasoning": setReasoning,
		"truncation": func(r *body, param string, raw json.RawMessage) error {
			_, _, err := r.hint(param, raw, "disabled")
			return err
		},
		"metadata": setMetadata,
		"service_tier": func(r *body, param string, raw json.RawMessage) error {
			word, ok, err := r.hint(param, raw, "auto", "default", "flex", "priority")
			if err != nil || !ok {
				return err
			}
			tier, err := keys.ParseTier(word)
			if err != nil {
				return strict.OneOf(param, word, "auto", "default", "flex", "priority")
			}
			r.request.Claim = &llmv1.Claim{Tier: tier}
			return nil
		},
		"store": func(r *body, param string, raw json.RawMessage) error {
			v, err := strict.Boolean(param, raw)
			r.store = &v
			return err
		},
		"background": func(r *body, param string, raw json.RawMessage) (err error) {
			r.settings.Background, err = strict.Boolean(param, raw)
			return err
		},
		"previous_response_id": func(r *body, param string, raw json.RawMessage) (err error) {
			if r.previous, err = strict.String(param, raw); r.previous != "" {
				r.settings.PreviousResponseID = &r.previous
			}
			return err
		},
		"prompt_cache_key": setSession,
		"user":             setSession,
		// The response repeats it; nothing else happens with it.
		"safety_identifier": func(r *body, param string, raw json.RawMessage) error {
			v, err := strict.String(param, raw)
			r.settings.SafetyIdentifier = &v
			return err
		},
	},
	Hints: []string{"metadata", "prompt_cache_key", "reasoning", "safety_identifier", "service_tier", "truncation", "user"},
	// These fields have no effect here: the engine alone decides which tokens it caches.
	Ignored:     []string{"client_metadata", "prompt_cache_options", "prompt_cache_retention"},
	Unsupported: []string{"context_management", "moderation"},
	Refused: map[string]string{
		"conversation": "names a conversation, and conversations are not kept here; send previous_response_id, or the items in input",
		"prompt":       "names a prompt template, and templates are not kept here; send its text in instructions and input",
	},
}

// Fields returns how each field of POST /v1/responses is treated: honoured, ignored or refused.
func Fields() map[string]string { return fields.Fields() }

// Parser returns a parser of bodies of POST /v1/responses. stores is the value of a missing field store.
func Parser(stores bool) func(text []byte, in *strict.Reading) (*call.Call, error) {
	return func(text []byte, in *strict.Reading) (*call.Call, error) { return parse(text, stores, in) }
}

// parse parses a body. Its errors are *streamerr.Error with reason INVALID, whose Param is the invalid field.
func parse(text []byte, stores bool, in *strict.Reading) (*call.Call, error) {
	r := newBody(stores, in)
	if err := r.parse(text); err != nil {
		return nil, err
	}
	return r.call(), nil
}

func newBody(stores bool, in *strict.Reading) *body {
	return &body{request: &chatv1.ChatRequest{Sampling: &llmv1.Sampling{}}, in: in, settings: defaults(), storage: storage{stores: stores}, functions: map[string]function{}, taken: map[string]bool{}}
}

func (r *body) parse(text []byte) error {
	members, err := strict.Fields(text)
	if err == nil {
		err = fields.Parse(members, r, r.in)
	}
	if err == nil {
		err = r.complete()
	}
	return err
}

// call returns the call that a body asks for.
func (r *body) call() *call.Call {
	r.encoder = &Encoder{
		output: output{encrypts: r.encrypts, functions: r.functions}, request: r.request, repeated: r.repeated,
		stores: r.memo != nil, status: queued, endedAt: sync.OnceValue(time.Now),
	}
	return &call.Call{
		Request: r.request, Images: r.images, Stream: r.stream, Param: r.param, EndedAt: r.encoder.endedAt,
		Store: r.kept(), Earlier: r.previous, References: r.references, Continue: r.follow,
		Events: r.encoder.events, Whole: r.encoder.whole, Failure: r.encoder.fail, Done: r.encoder.done, IDPrefix: IDPrefix,
		Forget: func() { r.origins, r.toolOrigins = nil, nil },
	}
}

// complete makes the checks that need several fields, and completes the request.
func (r *body) complete() error {
	switch {
	case r.request.GetModel() == "" && !r.counts:
		return streamerr.InvalidParam("model", "model is missing").WithCode(streamerr.CodeMissing)
	case len(r.request.GetMessages()) == 0 && !r.continues():
		return streamerr.InvalidParam("input", "input is missing or empty").WithCode(streamerr.CodeMissing)
	}
	if err := r.offer(r.offers); err != nil {
		return err
	}
	r.offers = nil
	if err := r.chooseTools(); err != nil {
		return err
	}
	if err := r.decideStorage(); err != nil {
		return err
	}
	r.repeated = r.settings.members()
	if !r.continues() {
		r.instruct()
	}
	r.settings = settings{}
	return nil
}

// converse sets the messages of the request.
func (r *body) converse(c *conversation.Conversation) {
	r.request.Messages, r.origins, r.images, r.references, r.offers = c.Messages, c.Origins, c.Images, c.References, c.Offers
}

// instruct adds the instructions to the messages of the request.
func (r *body) instruct() {
	r.request.Messages, r.origins = conversation.WithInstructions("instructions", r.instructions, r.request.GetMessages(), r.origins)
	r.instructions = ""
	if r.compacts {
		r.askForSummary()
	}
}

// setSession parses the fields that identify the conversation; a session affects only the choice of
// the worker. prompt_cache_key overrides user, in whatever order they appear.
func setSession(r *body, param string, raw json.RawMessage) error {
	v, err := strict.String(param, raw)
	if err != nil {
		return err
	}
	if param == "user" {
		r.settings.User = &v
	} else {
		r.settings.PromptCacheKey = &v
	}
	if v != "" && (r.session == "" || param != "user") {
		r.session, r.request.Session = param, v
		if len(v) > maxSession {
			sum := sha256.Sum256([]byte(v))
			r.request.Session = hex.EncodeToString(sum[:])
		}
	}
	return nil
}

// maxSession bounds the name of a session in requests to the chat-service, in bytes. A hash stands for
// a longer name.
const maxSession = 256

// hint parses a word that changes no more than the manner of an answer. ok is false for an unknown
// word, which is left out and named, and for an empty one.
func (r *body) hint(param string, raw json.RawMessage, known ...string) (word string, ok bool, err error) {
	if word, err = strict.String(param, raw); err != nil || word == "" {
		return "", false, err
	}
	ok, err = r.in.Hint(param, word, known...)
	return word, ok, err
}

// limit parses a limit. Clients send 0 and -1 for none.
func limit(param string, raw json.RawMessage) (*uint32, error) {
	if text := string(raw); text == "0" || text == "-1" {
		return nil, nil //nolint:nilnil // no limit, which is not an error
	}
	return strict.Count(param, raw, 1)
}

var (
	inMessages = regexp.MustCompile(`^messages\[(\d+)\](?:\.tool_calls\[(\d+)\](.*))?`)
	inTools    = regexp.MustCompile(`^tools\[(\d+)\](.*)$`)
)

// param converts a field name of the IDL, which an inner hop uses in its errors, to its name in the
// body.
func (r *body) param(inner string) string {
	name := strings.TrimPrefix(inner, "sampling.")
	switch {
	case name == "prompt" || name == "messages" || name == "images":
		return "input"
	case name == "max_tokens":
		return "max_output_tokens"
	case name == "template_variables":
		return "reasoning.effort"
	case name == "session" && r.session != "":
		return r.session
	case name == "guide" && r.guide != "":
		return r.guide
	case name == "logprobs" && r.logprobs != "":
		return r.logprobs
	}
	// The regular expression matches only digits, so Atoi cannot fail.
	if at := inMessages.FindStringSubmatch(name); at != nil {
		if i, _ := strconv.Atoi(at[1]); i < len(r.origins) {
			from := r.origins[i]
			if j, err := strconv.Atoi(at[2]); err == nil && j < len(from.Calls) {
				return from.Calls[j] + at[3]
			}
			return from.At
		}
	}
	if at := inTools.FindStringSubmatch(name); at != nil {
		if i, _ := strconv.Atoi(at[1]); i < len(r.toolOrigins) {
			return r.toolOrigins[i] + at[2]
		}
	}
	return name
}
