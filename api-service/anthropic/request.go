// Package anthropic is the JSON of Anthropic's Messages API: it parses request bodies, and encodes
// events, messages and errors.
//
// Fields are read as in package openai; the tables in this package list them, and
// docs/reference/fields.md prints the tables.
package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/api-service/transcript"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// VersionHeader names the version of the API that a client speaks.
const VersionHeader = "anthropic-version"

// versions are the versions of the API whose requests, events and errors this package implements,
// oldest first.
var versions = []string{"2023-06-01", "2026-10-21"}

// CheckVersion reads the version of the API. A version that is not known is answered as the newest
// one before it, or as the oldest one; in names the header then. A request may leave the version
// out.
func CheckVersion(version string, in *strict.Reading) error {
	if version == "" || slices.Contains(versions, version) {
		return nil
	}
	if _, err := time.Parse(time.DateOnly, version); err != nil || in != nil && in.Strict {
		return streamerr.InvalidParam(VersionHeader, "%s is %.32q; it must be %s", VersionHeader, version, strings.Join(versions, " or "))
	}
	in.Ignore(VersionHeader)
	return nil
}

// A message is a body of POST /v1/messages, or of /v1/messages/count_tokens.
type message struct {
	in           *strict.Reading
	request      *chatv1.ChatRequest
	stream       bool
	system       string              // until parse adds it to the messages of request
	origins      []transcript.Origin // for each message of request, the field that it comes from
	images       []image.Source      // of the messages
	tools        tools               // until parse adds them to request
	effort       string              // of the conversation
	toolsAt      []string            // for each tool of request, its path in the body
	guide        string              // name of the field that asks for a guide
	variables    map[string]any      // of the chat template
	variablesBy  string              // name of the field that sets variables
	hideThinking bool                // reasoning blocks are sent without their text
}

type setter = strict.Setter[*message]

// shared are the fields of both kinds of bodies.
var shared = strict.Table[*message]{
	Honoured: map[string]setter{
		"model": func(m *message, param string, raw json.RawMessage) (err error) {
			m.request.Model, err = strict.String(param, raw)
			return err
		},
		"messages":      setMessages,
		"system":        setSystem,
		"tools":         setTools,
		"tool_choice":   setToolChoice,
		"thinking":      setThinking,
		"output_config": setOutputConfig,
		"output_format": (*message).setFormat, // the name of output_config.format in an older beta
		"speed":         hint("standard"),
	},
	// The engine decides which tokens it caches, and Whence edits no context. Clients of other
	// clouds send the version and the betas in the body.
	Ignored:     []string{"anthropic_beta", "anthropic_version", "betas", "billing_policy", "cache_control", "context_management", "fallback_credit_token"},
	Unsupported: []string{"fallbacks", "mcp_servers", "user_profile_id", "workspace_id"},
	Refused:     map[string]string{"thread": "is a conversation that the server keeps, and none is kept here: send all its messages instead"},
}

// counted are the fields of POST /v1/messages/count_tokens: those of an answer count for nothing.
var counted = shared.And(strict.Table[*message]{Ignored: []string{
	"compaction", "container", "diagnostics", "inference_geo", "max_tokens", "metadata", "service_tier", "stop_sequences", "stream", "temperature", "top_k", "top_p",
}})

// created are the fields of POST /v1/messages.
var created = shared.And(strict.Table[*message]{
	Honoured: map[string]setter{
		"stream": func(m *message, param string, raw json.RawMessage) (err error) {
			m.stream, err = strict.Boolean(param, raw)
			return err
		},
		"max_tokens": func(m *message, param string, raw json.RawMessage) (err error) {
			m.request.Sampling.MaxTokens, err = strict.Count(param, raw, 1)
			return err
		},
		"temperature": func(m *message, param string, raw json.RawMessage) error {
			v, err := strict.Number(param, raw, 0, 1)
			m.request.Sampling.Temperature = &v
			return err
		},
		"top_p": func(m *message, param string, raw json.RawMessage) error {
			v, err := strict.Number(param, raw, 0, 1)
			if v == 0 {
				v = math.SmallestNonzeroFloat32 // "keep nothing" can only mean the most likely token
			}
			m.request.Sampling.TopP = &v
			return err
		},
		"top_k": func(m *message, param string, raw json.RawMessage) error {
			v, err := strict.Integer(param, raw, -1, math.MaxInt32)
			m.request.Sampling.TopK = new(uint32(max(v, 0))) // -1 and 0 both keep all tokens
			return err
		},
		"stop_sequences": func(m *message, param string, raw json.RawMessage) (err error) {
			switch {
			case strict.Empty(raw):
				return nil
			case raw[0] != '[':
				return strict.Mismatch(param, "an array of strings", raw)
			}
			m.request.Stop, err = strict.Stops(param, raw)
			return err
		},
		"metadata":     setMetadata,
		"service_tier": hint("auto", "standard_only"),
	},
	Hints:       []string{"metadata"},
	Unsupported: []string{"container", "diagnostics", "inference_geo"},
	Refused:     map[string]string{"compaction": "asks for a summary instead of an answer, and is not supported here: ask for a summary in a message"},
})

// Fields returns how each field of POST /v1/messages is treated: honoured, ignored or refused.
func Fields() map[string]string { return created.Fields() }

// CountFields returns how each field of POST /v1/messages/count_tokens is treated.
func CountFields() map[string]string { return counted.Fields() }

func newMessage(in *strict.Reading) *message {
	return &message{in: in, request: &chatv1.ChatRequest{Sampling: &llmv1.Sampling{}}}
}

// Parse parses a body of POST /v1/messages. Its errors are *streamerr.Error with reason INVALID, whose Param is the invalid field.
func Parse(body []byte, in *strict.Reading) (*call.Call, error) {
	m := newMessage(in)
	if err := m.parse(body, &created); err != nil {
		return nil, err
	}
	if m.request.GetSampling().MaxTokens == nil {
		return nil, streamerr.InvalidParam("max_tokens", "max_tokens is missing").WithCode(streamerr.CodeMissing)
	}
	return &call.Call{
		Request: m.request, Images: m.images, Stream: m.stream, Param: m.param, Events: m.events, Whole: m.whole, IDPrefix: idPrefix,
		Forget: func() { m.origins, m.toolsAt = nil, nil },
	}, nil
}

// parse parses a body, and completes the request.
func (m *message) parse(body []byte, table *strict.Table[*message]) error {
	fields, err := strict.Fields(body)
	if err == nil {
		err = table.Parse(fields, m, m.in)
	}
	switch {
	case err != nil:
		return err
	case m.request.GetModel() == "":
		return streamerr.InvalidParam("model", "model is missing").WithCode(streamerr.CodeMissing)
	case len(m.request.GetMessages()) == 0:
		return streamerr.InvalidParam("messages", "messages is missing or empty").WithCode(streamerr.CodeMissing)
	}
	last := m.request.GetMessages()[len(m.request.GetMessages())-1]
	m.request.ContinueMessage = last.GetRole() == "assistant"
	m.prependSystem()
	m.offer()
	if m.effort != "" {
		m.setVariable("messages", "reasoning_effort", m.effort)
	}
	if len(m.variables) > 0 {
		m.request.TemplateVariables = string(marshal(m.variables))
		m.variables = nil
	}
	return nil
}

// prependSystem prepends the system prompt to the messages. If the first message has the role
// system, prependSystem merges both.
func (m *message) prependSystem() {
	if m.system == "" {
		return
	}
	if first := m.request.GetMessages()[0]; first.GetRole() == "system" {
		first.Content = m.system + transcript.Paragraph + first.GetContent()
		m.origins[0] = transcript.Origin{At: "system"}
	} else {
		m.request.Messages = slices.Insert(m.request.GetMessages(), 0, &chatv1.Message{Role: "system", Content: m.system})
		m.origins = slices.Insert(m.origins, 0, transcript.Origin{At: "system"})
	}
	m.system = ""
}

// setVariable sets a variable of the chat template for a field. Most templates ignore it.
func (m *message) setVariable(field, name string, value any) {
	if m.variables == nil {
		m.variables = map[string]any{}
	}
	m.variablesBy = field
	m.variables[name] = value
}

// hint returns a setter of a field with one of the known words. None of them changes an answer.
func hint(known ...string) setter {
	return func(m *message, param string, raw json.RawMessage) error {
		_, err := word(m.in, param, raw, known...)
		return err
	}
}

// word parses a word that is a hint. It returns "" for an empty or unknown word, and for another
// type: they count as missing.
func word(in *strict.Reading, param string, raw json.RawMessage, known ...string) (string, error) {
	if strict.Empty(raw) {
		return "", nil
	}
	text, err := strict.String(param, raw)
	if err != nil {
		return "", in.Unsupported(param)
	}
	if ok, err := in.Hint(param, text, known...); !ok {
		return "", err
	}
	return text, nil
}

// maxSession bounds Request.Session, in bytes.
const maxSession = 256

// setMetadata parses the user's id, which names the conversation for the choice of a worker. An id
// that is too long is replaced by its digest.
func setMetadata(m *message, param string, raw json.RawMessage) error {
	if strict.Empty(raw) {
		return nil
	}
	fields, err := m.in.Members(param, raw, "user_id")
	if raw, ok := fields["user_id"]; err == nil && ok {
		if m.request.Session, err = strict.String(param+".user_id", raw); err != nil {
			return m.in.Unsupported(param + ".user_id")
		}
		if len(m.request.GetSession()) > maxSession {
			digest := sha256.Sum256([]byte(m.request.GetSession()))
			m.request.Session = hex.EncodeToString(digest[:])
		}
	}
	return err
}

// setThinking parses whether the model thinks before it answers. Chat templates use one of two
// names for this variable. A budget has no effect, because models here have none; with "enabled" it
// must allow a token.
func setThinking(m *message, param string, raw json.RawMessage) error {
	if strict.Empty(raw) {
		return nil
	}
	fields, err := m.in.Members(param, raw, "type", "block_binding", "budget_tokens", "display")
	if err != nil {
		return err
	}
	if _, err := strict.Member(param, "type", fields); err != nil {
		return err
	}
	kind, err := word(m.in, param+".type", fields["type"], "adaptive", "disabled", "enabled")
	if err != nil {
		return err
	}
	if raw, ok := fields["budget_tokens"]; ok && kind == "enabled" {
		if _, err := strict.Count(param+".budget_tokens", raw, 1); err != nil {
			return err
		}
	}
	if !strict.Empty(fields["budget_tokens"]) {
		m.in.Ignore(param + ".budget_tokens")
	}
	display, err := word(m.in, param+".display", fields["display"], "omitted", "summarized", "updates")
	m.hideThinking = display == "omitted"
	if kind != "" {
		m.setVariable(param, "enable_thinking", kind != "disabled")
		m.setVariable(param, "thinking", kind != "disabled")
	}
	return err
}

// efforts are the values of output_config.effort.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// setOutputConfig parses the format of the answer, and the effort, which is a variable of the chat
// template.
func setOutputConfig(m *message, param string, raw json.RawMessage) error {
	if strict.Empty(raw) {
		return nil
	}
	fields, err := m.in.Members(param, raw, "effort", "format", "task_budget")
	if err != nil {
		return err
	}
	if !strict.Empty(fields["task_budget"]) {
		if err := m.in.Unsupported(param + ".task_budget"); err != nil {
			return err
		}
	}
	effort, err := word(m.in, param+".effort", fields["effort"], efforts...)
	if effort != "" {
		m.setVariable(param+".effort", "reasoning_effort", effort)
	}
	if raw, ok := fields["format"]; ok && err == nil {
		err = m.setFormat(param+".format", raw)
	}
	return err
}

// setFormat parses the format of the answer.
func (m *message) setFormat(param string, raw json.RawMessage) error {
	if strict.Empty(raw) {
		return nil
	}
	fields, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	kind, err := strict.Member(param, "type", fields)
	if err == nil {
		err = strict.OneOf(param+".type", kind, "json_schema", "text")
	}
	if err == nil {
		err = m.in.Only(param, fields, "type", "schema")
	}
	if err != nil || kind == "text" {
		return err
	}
	form := &llmv1.GuideForm{}
	if form.Schema, err = strict.Compact(param+".schema", fields["schema"]); err != nil {
		return err
	}
	m.request.Sampling.Guide = &llmv1.Guide{Forms: []*llmv1.GuideForm{form}}
	if m.guide == "" { // otherwise tool_choice has asked for a call, which wins
		m.guide = param
	}
	return nil
}

var (
	inMessages = regexp.MustCompile(`^messages\[(\d+)\]`)
	inTools    = regexp.MustCompile(`^tools\[(\d+)\](.*)$`)
)

// param converts a field name of the IDL, which an inner hop uses in its errors, to its name in the
// body.
func (m *message) param(inner string) string {
	name := strings.TrimPrefix(inner, "sampling.")
	switch {
	case name == "prompt" || name == "images":
		return "messages"
	case name == "session":
		return "metadata.user_id"
	case name == "template_variables" && m.variablesBy != "":
		return m.variablesBy
	case name == "guide" && m.guide != "":
		return m.guide
	case name == "stop" || strings.HasPrefix(name, "stop["):
		return "stop_sequences" + strings.TrimPrefix(name, "stop")
	case name == "parallel_tool_calls":
		return "tool_choice.disable_parallel_tool_use"
	}
	// The regular expressions match only digits, so Atoi cannot fail.
	if at := inMessages.FindStringSubmatch(name); at != nil {
		if i, _ := strconv.Atoi(at[1]); i < len(m.origins) {
			return m.origins[i].At
		}
	}
	if at := inTools.FindStringSubmatch(name); at != nil {
		if i, _ := strconv.Atoi(at[1]); i < len(m.toolsAt) {
			return m.toolsAt[i] + strings.Replace(at[2], ".parameters", ".input_schema", 1)
		}
	}
	return name
}
