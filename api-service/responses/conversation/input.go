// Package conversation parses conversations in the JSON of OpenAI's Responses API: the items of a
// request's input.
//
// Fields are read as in package openai.
package conversation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/jsontext"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/api-service/transcript"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Parse parses a conversation: a string, which is the user's message, or an array of items. It
// returns the messages, the field that each of them comes from, and the sources of their images,
// which have not been fetched yet.
func Parse(in *strict.Reading, param string, raw json.RawMessage) ([]*chatv1.Message, []transcript.Origin, []image.Source, error) {
	return ParseAfter(in, nil, "", param, raw)
}

// ParseAfter is Parse for a conversation that continues earlier items, which come from the field
// named from.
func ParseAfter(in *strict.Reading, earlier []json.RawMessage, from, param string, raw json.RawMessage) ([]*chatv1.Message, []transcript.Origin, []image.Source, error) {
	c := &items{in: in}
	for _, raw := range earlier {
		if err := c.add(from, raw); err != nil {
			return nil, nil, nil, err
		}
	}
	switch raw[0] {
	case '"':
		text, err := strict.String(param, raw)
		if err != nil {
			return nil, nil, nil, err
		}
		c.Begin(param, "user").Content.Write(text)
	case '[':
		items, err := strict.Array(param, raw)
		if err != nil {
			return nil, nil, nil, err
		}
		for i, raw := range items {
			if err := c.add(fmt.Sprintf("%s[%d]", param, i), raw); err != nil {
				return nil, nil, nil, err
			}
		}
	default:
		return nil, nil, nil, strict.Mismatch(param, "a string or an array of items", raw)
	}
	all, origins := c.Messages()
	return all, origins, c.images, nil
}

// Items returns the items of a conversation that Parse accepts. They share no memory with raw.
func Items(raw json.RawMessage) []json.RawMessage {
	if raw[0] == '"' {
		text := append([]byte(`{"type":"message","role":"user","content":[{"type":"input_text","text":`), raw...)
		return []json.RawMessage{append(text, "}]}"...)}
	}
	var items []json.RawMessage
	_ = json.Unmarshal(raw, &items) // Parse has accepted it
	return items
}

// WithInstructions prepends instructions, which may be empty, to the messages of Parse, as a system
// message that comes from a field. It merges the system and developer messages at the beginning
// into one message: many chat templates take only one system message, at the beginning.
func WithInstructions(from, instructions string, messages []*chatv1.Message, origins []transcript.Origin) ([]*chatv1.Message, []transcript.Origin) {
	if instructions != "" {
		messages = slices.Insert(messages, 0, &chatv1.Message{Role: "system", Content: instructions})
		origins = slices.Insert(origins, 0, transcript.Origin{At: from})
	}
	var all transcript.Passage
	n := 0
	for n < len(messages) && (messages[n].GetRole() == "system" || messages[n].GetRole() == "developer") {
		all.Separate()
		all.Write(messages[n].GetContent())
		n++
	}
	if n < 2 {
		return messages, origins
	}
	messages[n-1], origins[n-1] = &chatv1.Message{Role: messages[0].GetRole(), Content: all.String()}, origins[0]
	return messages[n-1:], origins[n-1:]
}

const assistant = "assistant"

// items collects the messages of a body's items. An answer is several items: reasoning, messages and
// function calls. Consecutive items of the assistant become one turn; every other item becomes a turn
// of its own.
type items struct {
	in *strict.Reading
	transcript.Transcript
	images []image.Source
}

// add adds an item. It ignores the id and the status of the item: nothing is stored, and templates
// have no place for them.
func (c *items) add(at string, raw json.RawMessage) error {
	members, err := strict.Object(at, raw)
	if err != nil {
		return err
	}
	kind := "message" // a message may leave out its type
	if raw, ok := members["type"]; ok {
		if kind, err = strict.String(at+".type", raw); err != nil {
			return err
		}
	}
	// passthrough is a note of Codex about an item to OpenAI's servers.
	const passthrough = "internal_chat_message_metadata_passthrough"
	switch kind {
	case "message":
		if members, err = c.in.Members(at, raw, "type", "role", "content", "id", "status", "phase", "end_turn", passthrough); err == nil {
			err = c.addMessage(at, members)
		}
	case "reasoning":
		if members, err = c.in.Members(at, raw, "type", "id", "status", "summary", "content", "encrypted_content", passthrough); err == nil {
			err = c.addReasoning(at, members)
		}
	case "function_call":
		if members, err = c.in.Members(at, raw, "type", "id", "status", "call_id", "name", "namespace", "arguments", passthrough); err == nil {
			err = c.addCall(at, members)
		}
	case "function_call_output":
		if members, err = c.in.Members(at, raw, "type", "id", "status", "call_id", "output", passthrough); err == nil {
			err = c.addOutput(at, members)
		}
	case "item_reference":
		err = streamerr.InvalidParam(at, "%s refers to an item of an earlier response; send the item itself, as clients do with store: false, or send previous_response_id", at).WithCode(streamerr.CodeUnsupportedValue)
	default:
		err = streamerr.InvalidParam(at+".type", "%s.type is %q; it must be message, reasoning, function_call or function_call_output", at, strict.Printable(kind)).WithCode(streamerr.CodeUnsupportedValue)
	}
	return err
}

func (c *items) addMessage(at string, members map[string]json.RawMessage) error {
	role, err := strict.Member(at, "role", members)
	if err == nil {
		err = strict.OneOf(at+".role", role, "user", assistant, "system", "developer")
	}
	if err != nil {
		return err
	}
	raw, ok := members["content"]
	if !ok {
		return streamerr.InvalidParam(at+".content", "%s.content is missing", at).WithCode(streamerr.CodeMissing)
	}
	if role == "user" && raw[0] == '[' {
		return c.addParts(at+".content", raw, c.Begin(at, role))
	}
	if role != assistant {
		return texts(c.in, at+".content", raw, &c.Begin(at, role).Content, "input_text")
	}
	t := c.Continue(at, assistant)
	t.Content.Separate()
	return texts(c.in, at+".content", raw, &t.Content, "output_text", "refusal", "input_text")
}

// addReasoning adds an item of the assistant's reasoning: its text, or else the encrypted_content,
// which some clients send back alone, or else the summary, which another server may have made.
func (c *items) addReasoning(at string, members map[string]json.RawMessage) error {
	var content, summary transcript.Passage
	if raw, ok := members["content"]; ok {
		if err := parts(c.in, at+".content", raw, &content, "reasoning_text", "text"); err != nil {
			return err
		}
	}
	if raw, ok := members["summary"]; ok {
		if err := parts(c.in, at+".summary", raw, &summary, "summary_text"); err != nil {
			return err
		}
	}
	encrypted := ""
	if raw, ok := members["encrypted_content"]; ok {
		var err error
		if encrypted, err = decrypt(at+".encrypted_content", raw); err != nil {
			return err
		}
	}
	for _, text := range []string{content.String(), encrypted, summary.String()} {
		if text != "" {
			t := c.Continue(at, assistant)
			t.Reasoning.Separate()
			t.Reasoning.Write(text)
			break
		}
	}
	return nil
}

// invalidArguments is the member that holds arguments that are not a JSON object.
const invalidArguments = "INVALID_JSON"

// addCall adds a call that the model has made. A model may be cut off in the middle of the
// arguments, and clients send the call back with the rest of the answer. Such arguments become an
// object with the member invalidArguments, because templates take only objects.
func (c *items) addCall(at string, members map[string]json.RawMessage) error {
	made := &chatv1.ToolCall{}
	var err error
	if made.Id, err = strict.Member(at, "call_id", members); err != nil {
		return err
	}
	if made.Name, err = strict.Member(at, "name", members); err != nil {
		return err
	}
	if raw, ok := members["namespace"]; ok {
		namespace, err := strict.String(at+".namespace", raw)
		if err != nil {
			return err
		}
		if namespace != "" {
			made.Name = Flat(namespace, made.GetName())
		}
	}
	if made.Arguments, err = strict.Member(at, "arguments", members); err != nil {
		return err
	}
	arguments := bytes.TrimSpace([]byte(made.GetArguments()))
	switch {
	case len(arguments) == 0:
		made.Arguments = "{}" // some servers send an empty string for a call without arguments
	case arguments[0] != '{' || !json.Valid(arguments):
		made.Arguments = string(append(jsontext.String([]byte(`{"`+invalidArguments+`":`), made.GetArguments()), '}'))
	}
	t := c.Continue(at, assistant)
	t.Message.ToolCalls = append(t.Message.ToolCalls, made)
	t.Calls = append(t.Calls, at)
	return nil
}

func (c *items) addOutput(at string, members map[string]json.RawMessage) error {
	t := c.Begin(at, "tool")
	var err error
	if t.Message.ToolCallId, err = strict.Member(at, "call_id", members); err != nil {
		return err
	}
	raw, ok := members["output"]
	if !ok {
		return streamerr.InvalidParam(at+".output", "%s.output is missing", at).WithCode(streamerr.CodeMissing)
	}
	return texts(c.in, at+".output", raw, &t.Content, "input_text")
}

// texts parses a string, or an array of parts of the allowed types.
func texts(in *strict.Reading, param string, raw json.RawMessage, to *transcript.Passage, types ...string) error {
	switch raw[0] {
	case '"':
		text, err := strict.String(param, raw)
		to.Write(text)
		return err
	case '[':
		return parts(in, param, raw, to, types...)
	default:
		return strict.Mismatch(param, "a string or an array of parts", raw)
	}
}

// parts parses an array of parts of the allowed types, and joins their texts.
func parts(in *strict.Reading, param string, raw json.RawMessage, to *transcript.Passage, types ...string) error {
	return eachPart(param, raw, func(at, kind string, members map[string]json.RawMessage) error {
		return text(in, at, kind, members, to, types...)
	})
}

// eachPart calls add with every part of an array, its path and its type.
func eachPart(param string, raw json.RawMessage, add func(at, kind string, members map[string]json.RawMessage) error) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		members, err := strict.Object(at, raw)
		if err != nil {
			return err
		}
		kind, err := strict.Member(at, "type", members)
		if err == nil {
			err = add(at, kind, members)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// text parses a part of the allowed types.
func text(in *strict.Reading, at, kind string, members map[string]json.RawMessage, to *transcript.Passage, types ...string) error {
	if strict.OneOf(at, kind, types...) != nil {
		return streamerr.InvalidParam(at, "%s is of the type %q, which is not supported here; it must be %s", at, strict.Printable(kind), strings.Join(types, " or ")).WithCode(streamerr.CodeUnsupportedValue)
	}
	member := "text"
	if kind == "refusal" {
		member = "refusal"
	}
	// annotations and logprobs are notes of an answer about its own text.
	if err := in.Only(at, members, "type", member, "annotations", "logprobs"); err != nil {
		return err
	}
	piece, err := strict.Member(at, member, members)
	to.Write(piece)
	return err
}
