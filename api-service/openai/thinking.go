package openai

import (
	"encoding/json"

	"github.com/whence-dev/whence/api-service/strict"
)

func setTemplateKwargs(c *Chat, param string, raw json.RawMessage) (err error) {
	c.Request.TemplateVariables, err = compact(param, raw)
	return err
}

// setVariable sets a variable of the template, unless chat_template_kwargs or another spelling of
// the same wish has set it.
func (c *Chat) setVariable(name string, value any) error {
	variables := map[string]json.RawMessage{}
	if c.Request.GetTemplateVariables() != "" {
		if err := json.Unmarshal([]byte(c.Request.GetTemplateVariables()), &variables); err != nil {
			return err // cannot fail: the member was parsed before
		}
	}
	if _, ok := variables[name]; !ok {
		variables[name] = marshal(value)
		c.Request.TemplateVariables = string(marshal(variables))
	}
	return nil
}

// setReasoningEffort passes the effort to the template; most templates ignore it.
func setReasoningEffort(c *Chat, param string, raw json.RawMessage) error {
	word, err := text(param, raw)
	if err != nil || word == "" {
		return err
	}
	return c.setVariable("reasoning_effort", word)
}

// setReasoning parses OpenRouter's form: {"effort": "low"}, or {"enabled": false}.
func setReasoning(c *Chat, param string, raw json.RawMessage) error {
	fields, err := c.in.Members(param, raw, "effort", "enabled", "max_tokens", "exclude", "summary")
	if err != nil {
		return err
	}
	for _, name := range []string{"max_tokens", "exclude", "summary"} {
		if !strict.Empty(fields[name]) {
			if err := c.in.Unsupported(param + "." + name); err != nil {
				return err
			}
		}
	}
	if raw, ok := fields["effort"]; ok {
		if err := setReasoningEffort(c, param+".effort", raw); err != nil {
			return err
		}
	}
	if raw, ok := fields["enabled"]; ok {
		return setEnableThinking(c, param+".enabled", raw)
	}
	return nil
}

// setEnableThinking parses Qwen's form.
func setEnableThinking(c *Chat, param string, raw json.RawMessage) error {
	think, err := boolean(param, raw)
	if err != nil {
		return err
	}
	return c.setVariable("enable_thinking", think)
}

// setThinking parses DeepSeek's and GLM's form: {"type": "disabled"}.
func setThinking(c *Chat, param string, raw json.RawMessage) error {
	fields, err := c.in.Members(param, raw, "type", "budget_tokens", "clear_thinking")
	if err != nil || fields["type"] == nil {
		return err
	}
	for _, name := range []string{"budget_tokens", "clear_thinking"} {
		if !strict.Empty(fields[name]) {
			if err := c.in.Unsupported(param + "." + name); err != nil {
				return err
			}
		}
	}
	word, err := text(param+".type", fields["type"])
	if err != nil {
		return err
	}
	if known, err := c.in.Hint(param+".type", word, "enabled", "disabled", "auto", "adaptive"); err != nil || !known || word == "auto" || word == "adaptive" {
		return err
	}
	return c.setVariable("enable_thinking", word == "enabled")
}

// setThink parses Ollama's form: a boolean, or an effort.
func setThink(c *Chat, param string, raw json.RawMessage) error {
	if raw[0] == '"' {
		return setReasoningEffort(c, param, raw)
	}
	return setEnableThinking(c, param, raw)
}
