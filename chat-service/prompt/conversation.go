package prompt

import (
	"fmt"
	"unicode/utf8"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// check refuses a conversation that no template can render. It refuses more than limit bytes, so
// that a template that still writes too much is itself to blame.
func check(messages []*chatv1.Message, limit int) error {
	if len(messages) == 0 {
		return streamerr.InvalidParam("messages", "messages must not be empty")
	}
	size := 0
	for i, m := range messages {
		n, err := checkMessage(i, m)
		if err != nil {
			return err
		}
		if size += n; size > limit {
			return streamerr.InvalidParam("messages", "messages must not be longer than %d bytes together", limit)
		}
	}
	return nil
}

// checkMessage refuses a message that no template can render. It returns the size of the message in
// bytes.
func checkMessage(number int, m *chatv1.Message) (size int, err error) {
	at := func() string { return fmt.Sprintf("messages[%d]", number) }
	if m == nil {
		return 0, streamerr.InvalidParam(at(), "%s must not be null", at())
	}
	switch m.GetRole() {
	case "system", "developer", "user", "assistant", "tool":
	default:
		return 0, streamerr.InvalidParam(at()+".role", "%s.role must be system, developer, user, assistant or tool, not %.40q",
			at(), m.GetRole())
	}
	for _, field := range [...]struct{ name, text string }{{"content", m.GetContent()}, {"name", m.GetName()}, {"reasoning", m.GetReasoning()}} {
		if !utf8.ValidString(field.text) {
			return 0, checkText(at()+"."+field.name, field.text)
		}
		size += len(field.text)
	}
	if len(m.GetImages()) > 0 {
		if err := checkImages(at(), m); err != nil {
			return 0, err
		}
	}
	if m.GetToolCallId() == "" && len(m.GetToolCalls()) == 0 {
		return size, nil
	}
	called, err := checkCalls(at(), m)
	return size + called, err
}

// checkCalls refuses tool calls that no template can render. It returns their size in bytes.
func checkCalls(at string, m *chatv1.Message) (size int, err error) {
	if err := checkText(at+".tool_call_id", m.GetToolCallId()); err != nil {
		return 0, err
	}
	if len(m.GetToolCalls()) > 0 && m.GetRole() != roleAssistant {
		return 0, streamerr.InvalidParam(at+".tool_calls", "%s.tool_calls is only for the role assistant", at)
	}
	for i, call := range m.GetToolCalls() {
		at := fmt.Sprintf("%s.tool_calls[%d]", at, i)
		for name, text := range map[string]string{".id": call.GetId(), ".name": call.GetName(), ".arguments": call.GetArguments()} {
			if err := checkText(at+name, text); err != nil {
				return 0, err
			}
			size += len(text)
		}
	}
	return size, nil
}

// checkText refuses text that is not UTF-8.
func checkText(param, s string) error {
	if !utf8.ValidString(s) {
		return streamerr.InvalidParam(param, "%s must be valid UTF-8", param)
	}
	return nil
}
