package openai

import (
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/strict"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// anyObject is the schema of response_format json_object.
const anyObject = `{"type":"object"}`

// setGuide sets the forms of the answer that a field asks for.
func (c *Chat) setGuide(param string, forms ...*llmv1.GuideForm) error {
	guide := &llmv1.Guide{Forms: forms}
	if known := c.Request.GetSampling().GetGuide(); known != nil && !proto.Equal(known, guide) {
		return streamerr.InvalidParam(param, "%s and %s ask for different forms of the answer", c.guide, param)
	}
	c.guide, c.Request.Sampling.Guide = param, guide
	return nil
}

// setResponseFormat parses a response format in the forms of OpenAI, Hugging Face (value), Together
// and llama.cpp (schema).
func setResponseFormat(c *Chat, param string, raw json.RawMessage) error {
	fields, err := object(param, raw)
	if err != nil || len(fields) == 0 {
		return err
	}
	kind, err := member(param, "type", fields)
	if err != nil {
		return err
	}
	schemas := []string{"schema", "value", "json_schema"}
	switch kind {
	case "text":
		return c.in.Only(param, fields, "type")
	case "json_object", "json", "json_schema":
		if err := c.in.Only(param, fields, append(schemas, "type")...); err != nil {
			return err
		}
	case "regex": // Text Generation Inference's, with the member value
		if err := c.in.Only(param, fields, "type", "value", "pattern"); err != nil {
			return err
		}
		for _, name := range []string{"value", "pattern"} {
			if raw, ok := fields[name]; ok {
				return c.constrain(param, param+"."+name, kind, raw)
			}
		}
		return streamerr.InvalidParam(param+".value", "%s.value is missing", param).WithCode(streamerr.CodeMissing)
	case "grammar", "structural_tag":
		return unenforceable(param + ".type \"" + kind + "\"").at(param)
	default:
		return unsupported(param+".type", "%s.type is %q; it must be text, json_object, json_schema or regex", param, printable(kind))
	}
	for _, name := range schemas {
		if raw := fields[name]; len(raw) > 0 && !null(raw) {
			schema, err := schemaOf(c.in, param+"."+name, raw)
			if err != nil {
				return err
			}
			return c.setGuide(param, &llmv1.GuideForm{Schema: schema})
		}
	}
	if kind == "json_schema" {
		param += ".json_schema"
		return streamerr.InvalidParam(param, "%s is missing", param).WithCode(streamerr.CodeMissing)
	}
	return c.setGuide(param, &llmv1.GuideForm{Schema: anyObject})
}

// schemaMembers are the members of a schema in its envelope. Strict and lax schemas are both
// enforced.
var schemaMembers = []string{"name", "description", "schema", "strict"}

// schemaOf parses a schema: in OpenAI's envelope, bare, or as a text.
func schemaOf(in *strict.Reading, param string, raw json.RawMessage) (string, error) {
	if raw[0] == '"' {
		s, err := text(param, raw)
		if err != nil {
			return "", err
		}
		raw = json.RawMessage(s)
		if !json.Valid(raw) {
			return "", streamerr.InvalidParam(param, "%s is a text that is not JSON", param)
		}
	}
	fields, err := object(param, raw)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc([]string{"name", "schema", "strict"}, func(name string) bool { return len(fields[name]) > 0 }) && len(fields) > 0 {
		return compact(param, raw) // bare
	}
	if fields, err = in.Members(param, raw, schemaMembers...); err != nil {
		return "", err
	}
	for _, name := range []string{"name", "description"} {
		if raw, ok := fields[name]; ok {
			if _, err := text(param+"."+name, raw); err != nil {
				return "", err
			}
		}
	}
	if raw, ok := fields["strict"]; ok {
		if _, err := boolean(param+".strict", raw); err != nil {
			return "", err
		}
	}
	if raw, ok := fields["schema"]; ok {
		return compact(param+".schema", raw)
	}
	return anyObject, nil
}

// An unenforceable is the name of a constraint that the guides here do not have.
type unenforceable string

func (u unenforceable) at(param string) error {
	return unsupported(param, "%s cannot be enforced by any worker here; JSON schemas, choices and regular expressions can", string(u))
}

// guided returns the setter of a field that asks for one kind of constraint.
func guided(kind string) setter {
	return func(c *Chat, param string, raw json.RawMessage) error { return c.constrain(param, param, kind, raw) }
}

// constrain sets the guide for a constraint, unless it is empty. field is the field of the body that
// has the constraint.
func (c *Chat) constrain(field, param, kind string, raw json.RawMessage) error {
	if strict.Empty(raw) && (kind != "json" || raw[0] != '{') {
		return nil
	}
	switch kind {
	case "json":
		schema, err := schemaOf(c.in, param, raw)
		if err != nil {
			return err
		}
		return c.setGuide(field, &llmv1.GuideForm{Schema: schema})
	case "json_object":
		if _, err := boolean(param, raw); err != nil {
			return err
		}
		return c.setGuide(field, &llmv1.GuideForm{Schema: anyObject})
	case "regex":
		expression, err := text(param, raw)
		if err != nil {
			return err
		}
		return c.setGuide(field, &llmv1.GuideForm{Pattern: expression})
	case "choice":
		choices, err := array(param, raw)
		if err != nil {
			return err
		}
		forms := make([]*llmv1.GuideForm, len(choices))
		for i, raw := range choices {
			at := fmt.Sprintf("%s[%d]", param, i)
			choice, err := text(at, raw)
			if err != nil {
				return err
			}
			if choice == "" {
				return streamerr.InvalidParam(at, "%s is empty", at)
			}
			forms[i] = &llmv1.GuideForm{Before: choice}
		}
		return c.setGuide(field, forms...)
	default:
		return unenforceable(param).at(param)
	}
}

// setStructuredOutputs parses vLLM's structured_outputs.
func setStructuredOutputs(c *Chat, param string, raw json.RawMessage) error {
	constraints := []string{"choice", "grammar", "json", "json_object", "regex", "structural_tag"}
	options := []string{"disable_any_whitespace", "disable_additional_properties", "disable_fallback", "whitespace_pattern"}
	fields, err := c.in.Members(param, raw, slices.Concat(constraints, options)...)
	if err != nil {
		return err
	}
	for _, name := range options {
		if !strict.Empty(fields[name]) {
			c.in.Ignore(param + "." + name)
		}
	}
	for _, name := range constraints {
		if raw, ok := fields[name]; ok {
			if err := c.constrain(param, param+"."+name, name, raw); err != nil {
				return err
			}
		}
	}
	return nil
}
