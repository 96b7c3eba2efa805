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

// versions are the API versions whose requests, events and errors this package implements. Older
// versions have other events.
var versions = []string{"2023-06-01", "2026-10-21"}

// CheckVersion refuses an unknown version of the API. A request may leave the version out.
func CheckVersion(version string) error {
	if version != "" && !slices.Contains(versions, version) {
		return streamerr.InvalidParam(VersionHeader, "%s is %.32q; it must be %s", VersionHeader, version, strings.Join(versions, " or "))
	}
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
	guide        string              // name of the field that asks for a guide
	variables    map[string]any      // of the chat template
	variablesBy  string              // name of the field that sets variables
	hideThinking bool                // reasoning blocks are sent without their text
}

type setter = strict.Setter[*message]

// counted are the fields of both kinds of bodies.
var counted = strict.Table[*message]{
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
		"speed":         words("standard"),
	},
	// The engine decides which tokens it caches, and Whence edits no context.
	Ignored:     []string{"cache_control", "context_management"},
	Unsupported: []string{"mcp_servers", "user_profile_id", "workspace_id"},
}

// created are the fields of POST /v1/messages.
var created = counted.And(strict.Table[*message]{
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
		"top_k": func(m *message, param string, raw json.RawMessage) (err error) {
			m.request.Sampling.TopK, err = strict.Count(param, raw, 0)
			return err
		},
		"stop_sequences": func(m *message, param string, raw json.RawMessage) (err error) {
			if raw[0] != '[' {
				return strict.Mismatch(param, "an array of strings", raw)
			}
			m.request.Stop, err = strict.Strings(param, raw)
			return err
		},
		"metadata":     setMetadata,
		"service_tier": words("auto", "standard_only"),
	},
	Unsupported: []string{"container", "diagnostics", "inference_geo"},
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
		Request: m.request, Images: m.images, Stream: m.stream, Param: m.param, Events: m.events, Whole: m.whole,
		Forget: func() { m.origins = nil },
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
	if last := len(m.request.GetMessages()) - 1; m.request.GetMessages()[last].GetRole() == "assistant" {
		return streamerr.InvalidParam(m.origins[last].At, "%s is the assistant's; an answer cannot be continued, so the last message must be the user's", m.origins[last].At)
	}
	m.prependSystem()
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

// words returns a setter that accepts only the allowed words. None of them changes an answer.
func words(allowed ...string) setter {
	return func(_ *message, param string, raw json.RawMessage) error {
		word, err := strict.String(param, raw)
		if err != nil {
			return err
		}
		return strict.OneOf(param, word, allowed...)
	}
}

// maxSession bounds Request.Session, in bytes.
const maxSession = 256

// setMetadata parses the user's id, which names the conversation for the choice of a worker. An id
// that is too long is replaced by its digest.
func setMetadata(m *message, param string, raw json.RawMessage) error {
	fields, err := strict.Object(param, raw)
	if err == nil {
		err = m.in.Only(param, fields, "user_id")
	}
	if raw, ok := fields["user_id"]; err == nil && ok && !strict.Null(raw) {
		if m.request.Session, err = strict.String(param+".user_id", raw); len(m.request.GetSession()) > maxSession {
			digest := sha256.Sum256([]byte(m.request.GetSession()))
			m.request.Session = hex.EncodeToString(digest[:])
		}
	}
	return err
}

// setThinking parses whether the model thinks before it answers. Chat templates use one of two
// names for this variable. A budget is checked but not enforced: models here have no budgets.
func setThinking(m *message, param string, raw json.RawMessage) error {
	fields, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	kind, err := strict.Member(param, "type", fields)
	if err == nil {
		err = strict.OneOf(param+".type", kind, "adaptive", "disabled", "enabled")
	}
	if err == nil {
		err = m.in.Only(param, fields, "type", "budget_tokens", "display")
	}
	if raw, ok := fields["budget_tokens"]; err == nil && ok && !strict.Null(raw) {
		_, err = strict.Count(param+".budget_tokens", raw, 1)
	}
	if raw, ok := fields["display"]; err == nil && ok && !strict.Null(raw) {
		var display string
		if display, err = strict.String(param+".display", raw); err == nil {
			err = strict.OneOf(param+".display", display, "summarized", "omitted")
		}
		m.hideThinking = display == "omitted"
	}
	m.setVariable(param, "enable_thinking", kind != "disabled")
	m.setVariable(param, "thinking", kind != "disabled")
	return err
}

// setOutputConfig parses the format of the answer, and the effort, which is a variable of the chat
// template.
func setOutputConfig(m *message, param string, raw json.RawMessage) error {
	fields, err := strict.Object(param, raw)
	if err == nil {
		err = m.in.Only(param, fields, "effort", "format")
	}
	if raw, ok := fields["effort"]; err == nil && ok && !strict.Null(raw) {
		var effort string
		if effort, err = strict.String(param+".effort", raw); err == nil {
			m.setVariable(param+".effort", "reasoning_effort", effort)
		}
	}
	if raw, ok := fields["format"]; err == nil && ok && !strict.Null(raw) {
		err = m.setFormat(param+".format", raw)
	}
	return err
}

func (m *message) setFormat(param string, raw json.RawMessage) error {
	fields, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	kind, err := strict.Member(param, "type", fields)
	if err == nil {
		err = strict.OneOf(param+".type", kind, "json_schema")
	}
	if err == nil {
		err = m.in.Only(param, fields, "type", "schema")
	}
	if err != nil {
		return err
	}
	form := &llmv1.GuideForm{}
	if form.Schema, err = strict.Compact(param+".schema", fields["schema"]); err != nil {
		return err
	}
	m.request.Sampling.Guide = &llmv1.Guide{Forms: []*llmv1.GuideForm{form}}
	if m.guide == "" { // otherwise tool_choice has asked for a call; the chat-service decides whether both are possible
		m.guide = param
	}
	return nil
}

var (
	inMessages = regexp.MustCompile(`^messages\[(\d+)\]`)
	inTools    = regexp.MustCompile(`^(tools\[\d+\])\.parameters$`)
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
	if at := inMessages.FindStringSubmatch(name); at != nil {
		// The regular expression matches only digits, so Atoi cannot fail.
		if i, _ := strconv.Atoi(at[1]); i < len(m.origins) {
			return m.origins[i].At
		}
	}
	return inTools.ReplaceAllString(name, "$1.input_schema")
}
