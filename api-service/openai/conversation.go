package openai

import (
	"encoding/json"

	"github.com/whence-dev/whence/api-service/openai/conversation"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

func setMessages(c *Chat, param string, raw json.RawMessage) error {
	parsed, err := conversation.Parse(c.in, param, raw)
	if err != nil {
		return err
	}
	c.Request.Messages, c.images = parsed.Messages, parsed.Images
	c.Request.ContinueMessage = c.Request.GetContinueMessage() || parsed.Continues
	return nil
}

func setTools(c *Chat, param string, raw json.RawMessage) error {
	before := c.tools.Functions
	if err := c.tools.Add(c.in, param, raw); err != nil {
		return err
	}
	c.older = c.older && c.tools.Functions == before
	return nil
}

// setFunctions parses functions in the older form, without a type. Their calls have the older form
// in the answer, too.
func setFunctions(c *Chat, param string, raw json.RawMessage) error {
	if err := c.tools.AddFunctions(c.in, param, raw); err != nil {
		return err
	}
	c.older = len(c.tools.List) > 0
	return nil
}

// setToolChoice keeps the tool choice until the tools are known.
func setToolChoice(c *Chat, param string, raw json.RawMessage) error {
	if param == "tool_choice" || c.choice == nil {
		c.choiceName, c.choice = param, raw
	}
	return nil
}

// setFunctionCall parses the older form of the tool choice: a word, or an object with a name.
func setFunctionCall(c *Chat, param string, raw json.RawMessage) error {
	if raw[0] == '"' {
		return setToolChoice(c, param, raw)
	}
	named, err := object(param, raw)
	if err != nil {
		return err
	}
	if _, err := member(param, "name", named); err != nil {
		return err
	}
	return setToolChoice(c, param, marshal(map[string]any{"type": "function", "function": named}))
}

// chooseTools completes the tools of the request. A required call wins over a form of the answer,
// which is for text.
func (c *Chat) chooseTools() (err error) {
	r := c.Request
	if len(c.choice) > 0 && !null(c.choice) && string(c.choice) != `""` && string(c.choice) != `{}` {
		if r.ToolChoice, err = c.tools.Choose(c.in, c.choiceName, c.choice); err != nil {
			return err
		}
	}
	if r.Tools = c.tools.List; c.older {
		r.ParallelToolCalls = new(false)
	}
	if r.GetToolChoice().GetMode() == chatv1.ToolMode_TOOL_MODE_REQUIRED {
		r.Sampling.Guide, c.guide = nil, c.choiceName
	}
	return nil
}
