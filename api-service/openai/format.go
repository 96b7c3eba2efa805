package openai

import (
	"encoding/json"

	"github.com/whence-dev/whence/api-service/strict"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// anyObject is the schema of response_format json_object.
const anyObject = `{"type":"object"}`

func setResponseFormat(c *Chat, param string, raw json.RawMessage) error {
	fields, err := object(param, raw)
	if err != nil {
		return err
	}
	kind, err := member(param, "type", fields)
	if err != nil {
		return err
	}
	form := &llmv1.GuideForm{Schema: anyObject}
	switch kind {
	case "text":
		return c.in.Only(param, fields, "type")
	case "json_object":
		err = c.in.Only(param, fields, "type")
	case "json_schema":
		if err = c.in.Only(param, fields, "type", "json_schema"); err == nil {
			form.Schema, err = namedSchema(c.in, param+".json_schema", fields["json_schema"])
		}
	default:
		err = unsupported(param+".type", "%s.type is %q; it must be text, json_object or json_schema", param, printable(kind))
	}
	if err != nil {
		return err
	}
	if c.guide == "" { // otherwise tool_choice has asked for a call; the chat-service decides whether both are possible
		c.guide = param
	}
	c.Request.Sampling.Guide = &llmv1.Guide{Forms: []*llmv1.GuideForm{form}}
	return nil
}

// namedSchema parses a schema with its name. Strict and lax schemas are both enforced.
func namedSchema(in *strict.Reading, param string, raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "", streamerr.InvalidParam(param, "%s is missing", param).WithCode(streamerr.CodeMissing)
	}
	fields, err := object(param, raw)
	if err != nil {
		return "", err
	}
	if err := in.Only(param, fields, "name", "description", "schema", "strict"); err != nil {
		return "", err
	}
	if _, err := member(param, "name", fields); err != nil {
		return "", err
	}
	if raw, ok := fields["description"]; ok && !null(raw) {
		if _, err := text(param+".description", raw); err != nil {
			return "", err
		}
	}
	if raw, ok := fields["strict"]; ok && !null(raw) {
		if _, err := boolean(param+".strict", raw); err != nil {
			return "", err
		}
	}
	if raw, ok := fields["schema"]; ok && !null(raw) {
		return compact(param+".schema", raw)
	}
	return anyObject, nil
}

func setTemplateKwargs(c *Chat, param string, raw json.RawMessage) (err error) {
	c.Request.TemplateVariables, err = compact(param, raw)
	return err
}

// setReasoningEffort passes the effort to the template; most templates ignore it.
func setReasoningEffort(c *Chat, param string, raw json.RawMessage) error {
	if _, err := text(param, raw); err != nil {
		return err
	}
	variables := map[string]json.RawMessage{}
	if c.Request.GetTemplateVariables() != "" {
		if err := json.Unmarshal([]byte(c.Request.GetTemplateVariables()), &variables); err != nil {
			return err // cannot fail: the member was parsed before
		}
	}
	if _, ok := variables[param]; !ok {
		variables[param] = raw
		c.Request.TemplateVariables = string(marshal(variables))
	}
	return nil
}
