// Package guided translates a guide into the forms that servers enforce: a JSON Schema, a
// list of choices, or a structural tag, which is XGrammar's JSON format for text, schemas and their
// combinations.
package guided

import (
	"encoding/json"
	"strings"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/llm-worker/guide/schema/merge"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const param = "sampling.guide"

// Validate refuses a guide without forms, or with a schema that is no JSON object or boolean. llama.cpp's
// server and Ollama treat null as no schema, and would let the model write anything.
func Validate(g *llmv1.Guide) error {
	if len(g.GetForms()) == 0 {
		return streamerr.InvalidParam(param, "a guide must have at least one form")
	}
	for _, form := range g.GetForms() {
		switch {
		case form.GetSchema() != "" && !json.Valid([]byte(form.GetSchema())):
			return streamerr.InvalidParam(param, "the guide's schema is not JSON")
		case form.GetSchema() != "" && !isSchema(form.GetSchema()):
			return streamerr.InvalidParam(param, "the guide's schema is neither an object nor a boolean")
		case form.GetPattern() != "" && form.GetSchema()+form.GetAfter() != "":
			return streamerr.InvalidParam(param, "beside the pattern of a guide's form, there is a schema or a text after it")
		case form.GetSchema()+form.GetPattern()+form.GetBefore()+form.GetAfter() == "":
			return streamerr.InvalidParam(param, "a form of the guide is empty")
		}
	}
	return nil
}

// isSchema reports whether valid JSON is an object or a boolean.
func isSchema(valid string) bool {
	return strings.ContainsAny(strings.TrimLeft(valid, " \t\r\n")[:1], "{tf")
}

// Schema returns the schema of a guide that is one schema without text around it, in a form that servers
// read completely.
func Schema(g *llmv1.Guide) (schema string, ok bool) {
	schema, ok = capability.LoneSchema(g)
	return string(merge.Distribute(json.RawMessage(schema))), ok
}

// Choices returns the allowed answers of a guide without schemas and patterns.
func Choices(g *llmv1.Guide) (choices []string, ok bool) {
	if g.GetFreeUntil() != "" {
		return nil, false
	}
	for _, form := range g.GetForms() {
		if form.GetSchema()+form.GetPattern() != "" {
			return nil, false
		}
		choices = append(choices, form.GetBefore()+form.GetAfter())
	}
	return choices, true
}

// A Format is a part of a structural tag. Type decides which other fields are set.
type Format struct {
	Type     string          `json:"type"`
	Value    string          `json:"value,omitempty"`       // of a const_string
	Schema   json.RawMessage `json:"json_schema,omitempty"` // of a json_schema
	Pattern  string          `json:"pattern,omitempty"`     // of a regex
	Elements []Format        `json:"elements,omitempty"`    // of a sequence, and of an or
	Begin    *string         `json:"begin,omitempty"`       // of a tag
	Content  *Format         `json:"content,omitempty"`     // of a tag
	End      string          `json:"end,omitempty"`         // of a tag
}

// A Tag is a structural tag.
type Tag struct {
	Type   string `json:"type"` // "structural_tag"
	Format Format `json:"format"`
}

// StructuralTag returns the structural tag of any valid guide.
func StructuralTag(g *llmv1.Guide) Tag {
	forms := make([]Format, len(g.GetForms()))
	for i, form := range g.GetForms() {
		forms[i] = sequence(text(form.GetBefore()), schema(form.GetSchema()), expression(form.GetPattern()), text(form.GetAfter()))
	}
	format := forms[0]
	if len(forms) > 1 {
		format = Format{Type: "or", Elements: forms}
	}
	if end := g.GetFreeUntil(); end != "" {
		// Within a tag, any_text continues until the tag's end.
		format = sequence(&Format{Type: "tag", Begin: new(string), Content: &Format{Type: "any_text"}, End: end}, &format)
	}
	return Tag{Type: "structural_tag", Format: format}
}

// text returns the format of a constant text; nil for none.
func text(value string) *Format {
	if value == "" {
		return nil
	}
	return &Format{Type: "const_string", Value: value}
}

// schema returns the format of a JSON value; nil for none.
func schema(value string) *Format {
	if value == "" {
		return nil
	}
	return &Format{Type: "json_schema", Schema: merge.Distribute(json.RawMessage(value))}
}

// expression returns the format of a text that matches a regular expression; nil for none.
func expression(pattern string) *Format {
	if pattern == "" {
		return nil
	}
	return &Format{Type: "regex", Pattern: pattern}
}

// sequence returns the format of parts in order, of which nil parts are left out. At least one is not
// nil.
func sequence(parts ...*Format) Format {
	var all []Format
	for _, part := range parts {
		if part != nil {
			all = append(all, *part)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return Format{Type: "sequence", Elements: all}
}
