// Package guided translates a guide into the forms that servers enforce: a JSON Schema, a
// list of choices, or a structural tag, which is XGrammar's JSON format for text, schemas and their
// combinations.
package guided

import (
	"encoding/json"
	"strings"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/llm-worker/guide/schema"
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
		case form.GetPattern() != "" && form.GetSchema()+form.GetAfter() != "":
			return streamerr.InvalidParam(param, "beside the pattern of a guide's form, there is a schema or a text after it")
		case form.GetSchema()+form.GetPattern()+form.GetBefore()+form.GetAfter() == "" && len(form.GetParts()) == 0:
			return streamerr.InvalidParam(param, "a form of the guide is empty")
		}
		if err := checkSchema(form.GetSchema()); err != nil {
			return err
		}
		for _, part := range form.GetParts() {
			if err := checkSchema(part.GetSchema()); err != nil {
				return err
			}
			if part.GetAfter() == "" {
				return streamerr.InvalidParam(param, "a part of a guide's form has no text after it")
			}
		}
	}
	return nil
}

func checkSchema(schema string) error {
	switch {
	case schema == "":
	case !json.Valid([]byte(schema)):
		return streamerr.InvalidParam(param, "the guide's schema is not JSON")
	case !isSchema(schema):
		return streamerr.InvalidParam(param, "the guide's schema is neither an object nor a boolean")
	}
	return nil
}

// isSchema reports whether valid JSON is an object or a boolean.
func isSchema(valid string) bool {
	return strings.ContainsAny(strings.TrimLeft(valid, " \t\r\n")[:1], "{tf")
}

// Schema returns the schema of a guide that is one schema without text around it, in a form that servers
// read completely.
func Schema(g *llmv1.Guide) (text string, ok bool) {
	if text, ok = capability.LoneSchema(g); ok {
		text = string(schema.Distribute(json.RawMessage(text)))
	}
	return text, ok
}

// Choices returns the allowed answers of a guide without schemas and patterns.
func Choices(g *llmv1.Guide) (choices []string, ok bool) {
	if g.GetFreeUntil() != "" {
		return nil, false
	}
	for _, form := range g.GetForms() {
		if form.GetSchema()+form.GetPattern() != "" || len(form.GetParts()) > 0 {
			return nil, false
		}
		choices = append(choices, form.GetBefore()+form.GetAfter())
	}
	return choices, true
}

// A Format is a part of a structural tag. Type decides which other fields are set.
type Format struct {
	Type      string          `json:"type"`
	Value     string          `json:"value,omitempty"`       // of a const_string
	Schema    json.RawMessage `json:"json_schema,omitempty"` // of a json_schema
	Pattern   string          `json:"pattern,omitempty"`     // of a regex
	Elements  []Format        `json:"elements,omitempty"`    // of a sequence, and of an or
	Tags      []Format        `json:"tags,omitempty"`        // of tags_with_separator
	Separator *string         `json:"separator,omitempty"`   // of tags_with_separator
	Begin     *string         `json:"begin,omitempty"`       // of a tag
	Content   *Format         `json:"content,omitempty"`     // of a tag
	End       string          `json:"end,omitempty"`         // of a tag
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
		all := append([]*Format{text(form.GetBefore()), valueFormat(form.GetSchema()), expression(form.GetPattern())}, parts(form.GetParts())...)
		forms[i] = sequence(append(all, text(form.GetAfter()))...)
	}
	format := or(forms...)
	if end := g.GetFreeUntil(); end != "" {
		// Within a tag, any_text continues until the tag's end.
		first := Format{Type: "tag", Begin: new(g.GetFreeFrom()), Content: &Format{Type: "any_text"}, End: end}
		whole := sequence(&first, text(g.GetFreeGap()), &format)
		if g.GetFreeFrom() != "" {
			whole = or(whole, format)
		}
		format = whole
	}
	return Tag{Type: "structural_tag", Format: format}
}

// parts returns the formats of the parts of a form. Servers let optional parts that follow each other
// stand in any order.
func parts(of []*llmv1.GuidePart) (all []*Format) {
	for _, part := range of {
		tag := Format{Type: "tag", Begin: new(part.GetBefore()), Content: valueFormat(part.GetSchema()), End: part.GetAfter()}
		switch {
		case tag.Content != nil:
		case len(part.GetTexts()) > 0:
			texts := make([]Format, len(part.GetTexts()))
			for i, value := range part.GetTexts() {
				texts[i] = *text(value)
			}
			tag.Content = new(or(texts...))
		default:
			tag.Content = &Format{Type: "any_text"}
		}
		last := len(all) - 1
		switch {
		case !part.GetOptional():
			all = append(all, &tag)
		case last >= 0 && all[last].Type == "tags_with_separator":
			all[last].Tags = append(all[last].Tags, tag)
		default:
			all = append(all, &Format{Type: "tags_with_separator", Tags: []Format{tag}, Separator: new(string)})
		}
	}
	return all
}

// or returns the format of one of some formats.
func or(formats ...Format) Format {
	if len(formats) == 1 {
		return formats[0]
	}
	return Format{Type: "or", Elements: formats}
}

// text returns the format of a constant text; nil for none.
func text(value string) *Format {
	if value == "" {
		return nil
	}
	return &Format{Type: "const_string", Value: value}
}

// valueFormat returns the format of a JSON value; nil for none.
func valueFormat(value string) *Format {
	if value == "" {
		return nil
	}
	return &Format{Type: "json_schema", Schema: schema.Distribute(json.RawMessage(value))}
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
