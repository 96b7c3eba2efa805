package chat

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/whence-dev/whence/chat-service/toolcall"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// A layout is the form of a model's calls whose arguments are no JSON object, but a parameter after
// the other, between tags:
//
//	<tool_call>\n<function= NAME > \n<parameter= KEY >\n VALUE \n</parameter> … \n</function>\n</tool_call>
//	head                         open lead            text        textEnd        end
type layout struct {
	head, open        string // the texts before and after the tool's name
	lead              string // before the name of a parameter
	text, value       string // between the name and a text, and between the name and JSON
	textEnd, valueEnd string // after a text, and after JSON
	comma             string // between two parameters, or ""
	end               string // after all parameters
}

// layoutOf finds the layout in a call of get_weather with a city, days and deep, as package prompt
// has them in its samples.
func layoutOf(call string) (l layout, ok bool) {
	var pieces []string
	for _, word := range []string{"get_weather", "city", "Paris", "days", "2", "deep", "rue"} {
		before, rest, found := strings.Cut(call, word)
		if !found {
			return l, false
		}
		pieces, call = append(pieces, before), rest
	}
	l.head, l.text, l.value = strings.TrimLeft(pieces[0], " \n"), pieces[2], pieces[4]
	first, next, last := pieces[1], pieces[3], strings.TrimRight(call, "\n")
	flag := pieces[6][:max(0, len(pieces[6])-1)]                                               // before "true" or "True"
	if quote, ok := strings.CutPrefix(l.text, l.value); ok && (quote == `"` || quote == "'") { // JSON or Python
		return l, false
	}
	l.lead = commonEnd(first, next)
	if tag := strings.IndexAny(l.lead, "<\n"); tag > 0 {
		l.lead = l.lead[tag:] // the bracket before it ends another tag
	}
	l.open = strings.TrimSuffix(first, l.lead)
	between := strings.TrimSuffix(pieces[5], l.lead) // after JSON
	n := 0
	for n < min(len(between), len(last)) && between[n] == last[n] {
		n++
	}
	l.valueEnd, l.comma, l.end = between[:n], between[n:], last[n:]
	l.textEnd, ok = strings.CutSuffix(next, l.comma+l.lead)
	same := strings.HasSuffix(pieces[5], l.lead) && l.value == flag && !strings.Contains(next, "city")
	return l, ok && same && l.head != "" && l.open+l.lead != "" && l.text != "" && l.value != "" && l.textEnd != "" && l.end != ""
}

// commonEnd returns the longest common end of two texts.
func commonEnd(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return a[len(a)-n:]
}

// isRead reports whether the parser of a format reads calls in the layout. Text behind a call, such as
// the beginning of the tool's turn, does not belong to the layout.
func (l *layout) isRead(f *toolcall.Format) bool {
	const tool, text, number = "read", "a b", "7"
	var name, arguments, rest string
	p := toolcall.New(f, func(name string) bool { return name == tool }, func(_ string, path ...string) toolcall.Value {
		if path[0] == "text" {
			return toolcall.TextValue
		}
		return toolcall.NumberValue
	}, nil, func(e toolcall.Event) {
		switch e.Kind {
		case toolcall.Begin:
			name += e.Text
		case toolcall.Arguments:
			arguments += e.Text
		case toolcall.Text, toolcall.Reasoning, toolcall.Complete, toolcall.ID:
			rest += e.Text
		}
	})
	p.Next(l.head + tool + l.open + l.lead + "text" + l.text + text + l.textEnd + l.comma + l.lead + "number" + l.value + number + l.valueEnd + l.end)
	p.End()
	var got struct {
		Text   string
		Number int
	}
	end, ok := strings.CutSuffix(l.end, rest)
	ok = ok && json.Unmarshal([]byte(arguments), &got) == nil && name == tool && got.Text == text && got.Number == 7
	if ok {
		l.end = end
	}
	return ok
}

// form returns the guide of a call in the layout. It returns false for a schema that the layout cannot
// enforce: text between tags has no bounds but its tag, and no form of JSON.
func (l *layout) form(tool, schema string) (*llmv1.GuideForm, bool) {
	var object struct {
		Type       string
		Properties json.RawMessage
		Required   []string
	}
	members := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(schema), &object) != nil || json.Unmarshal([]byte(schema), &members) != nil || object.Type != "object" {
		return nil, false
	}
	for name := range members {
		if !slices.Contains([]string{"type", "properties", "required", "additionalProperties", "title", "description", "$schema", "strict"}, name) {
			return nil, false
		}
	}
	form := &llmv1.GuideForm{Before: l.head + tool + l.open, After: l.end}
	names, schemas, ok := ordered(object.Properties)
	if !ok || slices.ContainsFunc(object.Required, func(name string) bool { return !slices.Contains(names, name) }) {
		return nil, false
	}
	for i, name := range names {
		part, ok := l.part(schemas[i])
		if !ok || !parameterName.MatchString(name) {
			return nil, false
		}
		part.Before = l.lead + name + part.GetBefore()
		if part.After = l.textEnd; part.GetSchema() != "" {
			part.After = l.valueEnd
		}
		part.Optional = !slices.Contains(object.Required, name)
		form.Parts = append(form.Parts, part)
	}
	return form, l.separate(form.GetParts())
}

// separate puts commas between parts, the first of which must be required: a comma precedes each
// other part.
func (l *layout) separate(parts []*llmv1.GuidePart) bool {
	if l.comma == "" || len(parts) == 0 {
		return true
	}
	slices.SortStableFunc(parts, func(a, b *llmv1.GuidePart) int {
		switch {
		case a.GetOptional() == b.GetOptional():
			return 0
		case b.GetOptional():
			return -1
		default:
			return 1
		}
	})
	for _, part := range parts[1:] {
		part.Before = l.comma + part.GetBefore()
	}
	return !parts[0].GetOptional()
}

var parameterName = regexp.MustCompile(`^[A-Za-z0-9_.$-]{1,64}$`)

// ordered returns the members of a JSON object in their order.
func ordered(object json.RawMessage) (names []string, values []json.RawMessage, ok bool) {
	if len(object) == 0 {
		return nil, nil, true
	}
	d := json.NewDecoder(bytes.NewReader(object))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil, nil, false
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil, nil, false
		}
		names, values = append(names, name.(string)), append(values, value) //nolint:forcetypeassert // names are strings
	}
	return names, values, true
}

// part returns the guide of a parameter's value, with the text between its name and the value. It
// returns false for a schema of a text with bounds, and for a schema that does not say whether the
// value is a text.
func (l *layout) part(schema json.RawMessage) (*llmv1.GuidePart, bool) {
	var is struct{ Enum []string }
	members := map[string]json.RawMessage{}
	if json.Unmarshal(schema, &members) != nil {
		return nil, false
	}
	_ = json.Unmarshal(schema, &is) // an enum of other values stays empty
	bounded := false
	for name := range members {
		bounded = bounded || !slices.Contains([]string{"type", "title", "description", "default", "examples", "enum"}, name)
	}
	types := members["type"]
	isText := bytes.Contains(types, []byte(`"string"`)) ||
		types == nil && len(is.Enum) > 0 && !slices.ContainsFunc(is.Enum, func(text string) bool { return json.Valid([]byte(text)) })
	switch {
	case isText && !bounded && members["enum"] == nil:
		return &llmv1.GuidePart{Before: l.text}, true
	case isText && !bounded && len(is.Enum) > 0 && !slices.ContainsFunc(is.Enum, func(text string) bool { return text == "" || strings.Contains(text, l.textEnd) }):
		return &llmv1.GuidePart{Before: l.text, Texts: is.Enum}, true
	case isText || types == nil || bytes.Contains(schema, []byte(`"$ref"`)):
		return nil, false
	}
	return &llmv1.GuidePart{Before: l.value, Schema: string(schema)}, true
}
