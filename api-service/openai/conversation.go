package openai

import (
	"encoding/json"

	"github.com/whence-dev/whence/api-service/openai/conversation"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

func setMessages(c *Chat, param string, raw json.RawMessage) (err error) {
	c.Request.Messages, c.images, err = conversation.Messages(c.in, param, raw)
	return err
}

func setTools(c *Chat, param string, raw json.RawMessage) (err error) {
	c.Request.Tools, err = conversation.Tools(c.in, param, raw)
	return err
}

func setToolChoice(c *Chat, param string, raw json.RawMessage) (err error) {
	c.Request.ToolChoice, err = conversation.ToolChoice(c.in, param, raw)
	if c.Request.GetToolChoice().GetMode() == chatv1.ToolMode_TOOL_MODE_REQUIRED {
		c.guide = param
	}
	return err
}
