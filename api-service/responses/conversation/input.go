// Package conversation parses conversations in the JSON of OpenAI's Responses API: the items of a
// request's input.
//
// Fields are read as in package openai. An item of a kind that has no meaning here never ends a
// session: it is converted, or replaced by a note in brackets, or left out, and named.
package conversation

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/api-service/transcript"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// A Conversation is a conversation as the request to the chat-service has it.
type Conversation struct {
	Messages []*chatv1.Message
	Origins  []transcript.Origin // for each message, the field that it comes from
	Images   []image.Source      // of the messages; they have not been fetched yet
	// References are the ids of items that the conversation only names (Resolve).
	References []string
	// Offers are the tools that items of the conversation offer.
	Offers []Offer
}

// An Offer is an array of tools in an item of a conversation.
type Offer struct {
	At    string // the field
	Tools json.RawMessage
}

// Parse parses a conversation: a string, which is the user's message, or an array of items.
func Parse(in *strict.Reading, param string, raw json.RawMessage) (*Conversation, error) {
	c := &items{in: in, collects: true}
	if err := c.parse(param, raw); err != nil {
		return nil, err
	}
	return c.conversation(), nil
}

// ParseAfter is Parse for a conversation that continues earlier items, which come from the field
// named from. References have been resolved: those that are left get a note.
func ParseAfter(in *strict.Reading, earlier []json.RawMessage, from, param string, raw json.RawMessage) (*Conversation, error) {
	c := &items{in: in}
	for _, raw := range earlier {
		if err := c.add(from, raw); err != nil {
			return nil, err
		}
	}
	if err := c.parse(param, raw); err != nil {
		return nil, err
	}
	return c.conversation(), nil
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

const (
	user      = "user"
	assistant = "assistant"
)

// items collects the messages of a body's items. An answer is several items: reasoning, messages and
// function calls. Consecutive items of the assistant become one turn; every other item becomes a turn
// of its own.
type items struct {
	in *strict.Reading
	transcript.Transcript
	images     []image.Source
	collects   bool // references are collected, and resolved later
	references []string
	offers     []Offer
	calls      int              // number of calls
	pending    []string         // ids of the calls that have no result yet
	summary    *transcript.Turn // the turn of a compaction item; a message of the user continues it
}

func (c *items) conversation() *Conversation {
	all, origins := c.Messages()
	return &Conversation{Messages: all, Origins: origins, Images: c.images, References: c.references, Offers: c.offers}
}

func (c *items) parse(param string, raw json.RawMessage) error {
	switch raw[0] {
	case '"':
		text, err := strict.String(param, raw)
		if err == nil {
			c.Begin(param, user).Content.Write(text)
		}
		return err
	case '[':
		items, err := strict.Array(param, raw)
		for i := 0; err == nil && i < len(items); i++ {
			err = c.add(fmt.Sprintf("%s[%d]", param, i), items[i])
		}
		return err
	default:
		return strict.Mismatch(param, "a string or an array of items", raw)
	}
}

// An adder adds an item whose members are not null.
type adder func(c *items, at string, members map[string]json.RawMessage) error

// kinds are the items that mean the same here as in the API.
var kinds = map[string]adder{
	"message":              (*items).addMessage,
	"reasoning":            (*items).addReasoning,
	"function_call":        (*items).addCall,
	"function_call_output": (*items).addOutput,
	"item_reference":       (*items).addReference,
	"additional_tools":     (*items).addTools,
}

// add adds an item. It ignores the id and the status of the item: templates have no place for them.
func (c *items) add(at string, raw json.RawMessage) error {
	members, err := strict.Object(at, raw)
	if err != nil {
		return err
	}
	for name, raw := range members {
		if strict.Null(raw) {
			delete(members, name)
		}
	}
	kind, err := kindOf(at, members)
	if err != nil {
		return err
	}
	if add, ok := kinds[kind]; ok {
		return add(c, at, members)
	}
	return c.addForeign(at, kind, members)
}

// kindOf returns the type of an item. Messages and references may leave it out.
func kindOf(at string, members map[string]json.RawMessage) (string, error) {
	if raw, ok := members["type"]; ok && !strict.Null(raw) {
		return strict.String(at+".type", raw)
	}
	if members["id"] != nil && members["role"] == nil && members["content"] == nil {
		return "item_reference", nil
	}
	return "message", nil
}

// passthrough is a note of Codex about an item to OpenAI's servers.
const passthrough = "internal_chat_message_metadata_passthrough"

func (c *items) addMessage(at string, members map[string]json.RawMessage) error {
	c.ignore(at, members, "parsed")
	if err := c.in.Only(at, members, "type", "role", "content", "id", "status", "phase", "end_turn", passthrough,
		"parsed", "refusal", "tool_calls", "tool_call_id", "call_id", "name", "annotations", "audio"); err != nil {
		return err
	}
	role, err := strict.Member(at, "role", members)
	if err == nil {
		err = strict.OneOf(at+".role", role, user, assistant, "system", "developer", "tool", "function")
	}
	if err != nil {
		return err
	}
	content := members["content"]
	switch role {
	case "tool", "function": // as in chats
		return c.addResult(at, at+".content", members, content)
	case assistant:
		t := c.Continue(at, assistant)
		t.Content.Separate()
		refusal, err := optional(at, "refusal", members) // as in chats
		if err == nil {
			err = c.content(at+".content", content, t)
		}
		if err != nil {
			return err
		}
		t.Content.Write(refusal)
		return c.addChatCalls(at, members["tool_calls"])
	case user:
		if t := c.summary; t != nil && t == c.Last(user) {
			c.summary = nil
			t.Content.Separate()
			return c.content(at+".content", content, t)
		}
	}
	return c.content(at+".content", content, c.Begin(at, role))
}

// ignore notes members that have no effect here.
func (c *items) ignore(at string, members map[string]json.RawMessage, names ...string) {
	for _, name := range names {
		if members[name] != nil {
			c.in.Ignore(at + "." + name)
		}
	}
}

// addReasoning adds an item of the assistant's reasoning: its text, or else the encrypted_content,
// which some clients send back alone, or else the summary, which another server may have made.
func (c *items) addReasoning(at string, members map[string]json.RawMessage) error {
	if err := c.in.Only(at, members, "type", "id", "status", "summary", "content", "encrypted_content", passthrough); err != nil {
		return err
	}
	var of [2]transcript.Turn // content and summary
	for i, name := range []string{"content", "summary"} {
		if err := c.content(at+"."+name, members[name], &of[i]); err != nil {
			return err
		}
	}
	encrypted := ""
	if raw, ok := members["encrypted_content"]; ok {
		text, ours, err := decrypt(at+".encrypted_content", raw)
		if err == nil && !ours {
			err = c.in.Unsupported(at + ".encrypted_content")
		}
		if err != nil {
			return err
		}
		encrypted = text
	}
	for _, text := range []string{of[0].Content.String(), encrypted, of[1].Content.String()} {
		if text != "" {
			t := c.Continue(at, assistant)
			t.Reasoning.Separate()
			t.Reasoning.Write(text)
			break
		}
	}
	return nil
}
