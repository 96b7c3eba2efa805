package prompt

import (
	"fmt"
	"strings"
	"unicode/utf8"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// check refuses a conversation that no template can be expected to render. More than limit bytes are refused here, so
// that a template that writes too much is to blame for it itself.
func check(messages []*chatv1.Message, limit int) error {
	if len(messages) == 0 {
		return streamerr.InvalidParam("messages", "messages must not be empty")
	}
	size := 0
	for i, m := range messages {
		at := fmt.Sprintf("messages[%d]", i)
		if m == nil {
			return streamerr.InvalidParam(at, "%s must not be null", at)
		}
		switch m.GetRole() {
		case "system", "developer", "user", "assistant", "tool":
		default:
			return streamerr.InvalidParam(at+".role", "%s.role must be system, developer, user, assistant or tool, not %.40q",
				at, m.GetRole())
		}
		if err := checkText(at+".content", m.GetContent()); err != nil {
			return err
		}
		if err := checkText(at+".name", m.GetName()); err != nil {
			return err
		}
		if err := checkText(at+".reasoning", m.GetReasoning()); err != nil {
			return err
		}
		called, err := checkCalls(at, m)
		if err != nil {
			return err
		}
		if size += len(m.GetContent()) + len(m.GetName()) + len(m.GetReasoning()) + called; size > limit {
			return streamerr.InvalidParam("messages", "messages must not be longer than %d bytes together", limit)
		}
	}
	return nil
}

// checkCalls refuses calls that no template can show, and returns how long they are.
func checkCalls(at string, m *chatv1.Message) (size int, err error) {
	if err := checkText(at+".tool_call_id", m.GetToolCallId()); err != nil {
		return 0, err
	}
	if len(m.GetToolCalls()) > 0 && m.GetRole() != "assistant" {
		return 0, streamerr.InvalidParam(at+".tool_calls", "%s.tool_calls is only for the role assistant", at)
	}
	for i, call := range m.GetToolCalls() {
		at := fmt.Sprintf("%s.tool_calls[%d]", at, i)
		if call.GetName() == "" {
			return 0, streamerr.InvalidParam(at+".name", "%s.name is missing", at)
		}
		for name, text := range map[string]string{".id": call.GetId(), ".name": call.GetName(), ".arguments": call.GetArguments()} {
			if err := checkText(at+name, text); err != nil {
				return 0, err
			}
			size += len(text)
		}
		if _, err := readObject(call.GetArguments()); err != nil {
			return 0, streamerr.InvalidParam(at+".arguments", "%s.arguments must be a JSON object: %v", at, err)
		}
	}
	return size, nil
}

// checkText refuses what tokenizers disagree about.
func checkText(param, s string) error {
	if !utf8.ValidString(s) {
		return streamerr.InvalidParam(param, "%s must be valid UTF-8", param)
	}
	if strings.ContainsRune(s, 0) {
		return streamerr.InvalidParam(param, "%s must not contain the character NUL", param)
	}
	return nil
}
