package prompt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// The roles of messages.
const (
	roleSystem    = "system"
	roleDeveloper = "developer"
	roleUser      = "user"
	roleAssistant = "assistant"
	roleTool      = "tool"
)

// Clean returns a text with U+FFFD for each NUL, which tokenizers treat differently. One NUL in the
// output of a tool must not end a session.
func Clean(text string) string {
	if strings.IndexByte(text, 0) < 0 {
		return text
	}
	return strings.ReplaceAll(text, "\x00", "\uFFFD")
}

// replace returns messages with the result of change for each message. It copies the slice only if
// there is a change.
func replace(messages []*chatv1.Message, change func(*chatv1.Message) *chatv1.Message) []*chatv1.Message {
	out, copied := messages, false
	for i, m := range messages {
		c := change(m)
		if c == m {
			continue
		}
		if !copied {
			out, copied = slices.Clone(messages), true
		}
		out[i] = c
	}
	return out
}

// copyOf returns a copy of a message that shares its calls and its images.
func copyOf(m *chatv1.Message) *chatv1.Message {
	return &chatv1.Message{
		Role: m.GetRole(), Content: m.GetContent(), Name: m.GetName(), ToolCalls: m.GetToolCalls(), ToolCallId: m.GetToolCallId(),
		Reasoning: m.GetReasoning(), Images: m.GetImages(),
	}
}

// withCalls returns a copy of a message with the result of change for a copy of each call.
func withCalls(m *chatv1.Message, change func(*chatv1.ToolCall)) *chatv1.Message {
	c := copyOf(m)
	c.ToolCalls = make([]*chatv1.ToolCall, len(m.GetToolCalls()))
	for i, call := range m.GetToolCalls() {
		c.ToolCalls[i] = &chatv1.ToolCall{Id: call.GetId(), Name: call.GetName(), Arguments: call.GetArguments()}
		change(c.ToolCalls[i])
	}
	return c
}

// A passage is a growing content: text and the images in it.
type passage struct {
	text   strings.Builder
	images []*chatv1.PlacedImage
}

// add appends the content of a message. change is applied to each of its texts.
func (p *passage) add(m *chatv1.Message, change func(string) string) {
	for text, placed := range parts(m) {
		if placed == nil {
			p.text.WriteString(change(text))
			continue
		}
		p.images = append(p.images, &chatv1.PlacedImage{Image: placed.GetImage(), Offset: uint32(p.text.Len())}) //nolint:gosec // check bounds the length
	}
}

// into makes the passage the content of a message.
func (p *passage) into(m *chatv1.Message) { m.Content, m.Images = p.text.String(), p.images }

// same returns a text unchanged.
func same(text string) string { return text }

// withoutNUL returns a message in which U+FFFD stands for NUL.
func withoutNUL(m *chatv1.Message) *chatv1.Message {
	has := func(text string) bool { return strings.IndexByte(text, 0) >= 0 }
	calls := slices.ContainsFunc(m.GetToolCalls(), func(c *chatv1.ToolCall) bool { return has(c.GetId()) || has(c.GetName()) || has(c.GetArguments()) })
	if !calls && !has(m.GetContent()) && !has(m.GetName()) && !has(m.GetReasoning()) && !has(m.GetToolCallId()) {
		return m
	}
	c := withCalls(m, func(call *chatv1.ToolCall) {
		call.Id, call.Name, call.Arguments = Clean(call.GetId()), Clean(call.GetName()), Clean(call.GetArguments())
	})
	var content passage
	content.add(m, Clean)
	content.into(c)
	c.Name, c.Reasoning, c.ToolCallId = Clean(m.GetName()), Clean(m.GetReasoning()), Clean(m.GetToolCallId())
	return c
}

// identified returns a conversation in which every call and every result of a call has an id, in the
// form that the template takes, and no call has the id of a call of an earlier turn. The same
// conversation always gets the same ids, so that its prompt stays the same from turn to turn.
func identified(messages []*chatv1.Message, form IDs) []*chatv1.Message {
	ids := identifier{form: form, taken: map[string]bool{}, used: map[string]bool{}, latest: map[string]string{}, again: map[string]int{}}
	for _, m := range messages {
		for _, call := range m.GetToolCalls() {
			ids.taken[call.GetId()] = true
		}
	}
	var calls []string        // ids of the last turn's calls; those before the first open one are cut off
	open := map[string]bool{} // those without a result
	return replace(messages, func(m *chatv1.Message) *chatv1.Message {
		switch {
		case m.GetRole() == roleTool:
			id := m.GetToolCallId()
			for len(calls) > 0 && !open[calls[0]] {
				calls = calls[1:]
			}
			if id != "" || len(calls) == 0 {
				id = ids.ofResult(id)
			} else {
				id = calls[0]
			}
			delete(open, id)
			if id != m.GetToolCallId() {
				m = copyOf(m)
				m.ToolCallId = id
			}
		case len(m.GetToolCalls()) > 0:
			for _, id := range ids.latest {
				ids.used[id] = true
			}
			clear(ids.latest)
			changed := false
			c := withCalls(m, func(call *chatv1.ToolCall) {
				id := ids.ofCall(call)
				changed = changed || id != call.GetId()
				call.Id = id
			})
			calls = nil
			clear(open)
			for _, call := range c.GetToolCalls() {
				calls = append(calls, call.GetId())
				open[call.GetId()] = true
			}
			if changed {
				m = c
			}
		}
		return m
	})
}

// An identifier makes ids of one form.
type identifier struct {
	form   IDs
	taken  map[string]bool   // ids that the conversation has
	used   map[string]bool   // ids of calls of earlier turns
	latest map[string]string // ids of the calls of the latest turn, by the ids that the conversation has
	again  map[string]int    // number of further calls with an id that the conversation has
	made   int               // number of ids made for calls and results without one
	calls  int               // number of the next call for NamedIDs
}

// ofCall returns the id of a call.
func (i *identifier) ofCall(call *chatv1.ToolCall) string {
	own := i.own(call.GetId())
	id := i.formed(own, call.GetName(), i.calls)
	for i.used[id] { // of a server that numbers the calls of each answer
		i.again[own]++
		id = i.formed(fmt.Sprint(own, "_", i.again[own]+1), call.GetName(), i.calls)
		i.calls++
	}
	i.calls++
	i.latest[own] = id
	return id
}

// ofResult returns the id of a result.
func (i *identifier) ofResult(id string) string {
	id = i.own(id)
	if of, ok := i.latest[id]; ok {
		return of
	}
	if i.form == NineIDs {
		return shortID(id)
	}
	return id
}

// own returns an id that the conversation has, or a new one for "".
func (i *identifier) own(id string) string {
	for id == "" {
		i.made++
		if next := fmt.Sprint("call_", i.made); !i.taken[next] {
			id = next
		}
	}
	return id
}

// formed returns an id in the form that the template takes: the id itself if it has that form.
func (i *identifier) formed(id, name string, number int) string {
	switch i.form {
	case NineIDs:
		return shortID(id)
	case NamedIDs:
		prefix := "functions." + name + ":"
		if digits, ok := strings.CutPrefix(id, prefix); ok && digits != "" && strings.Trim(digits, "0123456789") == "" {
			return id
		}
		return fmt.Sprint(prefix, number)
	default:
		return id
	}
}

// shortID returns nine letters and digits for an id, the id itself if it has that form.
func shortID(id string) string {
	const length = 9
	odd := func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }
	if len(id) == length && !strings.ContainsFunc(id, odd) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])[:length]
}
