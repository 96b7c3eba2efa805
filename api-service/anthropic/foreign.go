package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/whence-dev/whence/api-service/strict"
)

// foreign are the kinds of blocks that templates have no place for.
var foreign = []string{
	"advisor_tool_result", "bash_code_execution_tool_result", "browser_state", "code_execution_tool_result", "compaction", "container_upload", "document", "fallback", "image",
	"mcp_tool_listing", "mcp_tool_result", "mcp_tool_use", "redacted_thinking", "search_result", "server_tool_use", "text_editor_code_execution_tool_result", "thinking",
	"tool_addition", "tool_removal", "tool_search_tool_result", "tool_use", "web_fetch_tool_result", "web_search_tool_result",
}

// leave names a block that is left out, or that the model sees only as a text.
func (b *block) leave() error {
	if slices.Contains(foreign, b.kind) {
		return b.in.Unsupported(b.at + "." + b.kind)
	}
	return b.in.Unsupported(b.at)
}

// converted returns the text that stands for a block in the prompt, or "" for a block that says
// nothing to the model. refer is called with the tools that the block refers to.
func (b *block) converted(refer func(tool string)) string {
	words := strings.Join(readable(nil, b.fields, refer), "\n")
	switch b.kind {
	case "redacted_thinking", "thinking", "fallback", "mcp_tool_listing":
		return ""
	case "", "search_result", "compaction":
		return words
	case "tool_use", "server_tool_use", "mcp_tool_use":
		name, _ := b.optional("name")
		return "[" + strings.TrimSpace(name+" "+compact(b.fields["input"])) + "]"
	case "document":
		if hasText(b.fields["source"]) {
			return words
		}
		return strings.TrimSuffix("[document omitted: "+words, ": ") + "]"
	case "container_upload":
		return "[file omitted]"
	}
	kind := strict.Printable(b.kind)
	if words == "" {
		return "[" + kind + " omitted]"
	}
	return "[" + kind + "]\n" + words
}

// A source is the source of a document.
type source struct {
	Type  string
	Media string `json:"media_type"`
	Data  string
}

// sourceOf parses a source. A source of another form is empty.
func sourceOf(raw json.RawMessage) (s source) {
	if json.Unmarshal(raw, &s) != nil {
		return source{}
	}
	return s
}

// text returns the text of a source.
func (s source) text() (text string, ok bool) {
	switch {
	case s.Type == "text":
		return s.Data, true
	case s.Type == "base64" && strings.HasPrefix(s.Media, "text/"):
		b, err := base64.StdEncoding.DecodeString(s.Data)
		return string(b), err == nil && utf8.Valid(b)
	}
	return "", false
}

// hasText reports whether a document has a text.
func hasText(raw json.RawMessage) bool {
	s := sourceOf(raw)
	_, ok := s.text()
	return ok || s.Type == "content"
}

// readableMembers are the members of blocks that people can read, in the order in which they are
// shown. All others are identifiers, encrypted or encoded.
var readableMembers = []string{"error_code", "title", "context", "url", "source", "text", "stdout", "stderr", "content", "tabs", "tool_name", "tool_references"}

// readable appends the texts within an object to all. refer is called with the names of tools.
func readable(all []string, fields map[string]json.RawMessage, refer func(tool string)) []string {
	if raw := fields["source"]; len(raw) > 0 && raw[0] == '{' {
		if text, ok := sourceOf(raw).text(); ok {
			fields = maps.Clone(fields)
			fields["source"] = marshal(text)
		}
	}
	for _, name := range readableMembers {
		if raw := fields[name]; len(raw) > 0 {
			if tool, err := strict.String(name, raw); err == nil && name == "tool_name" {
				refer(tool)
			}
			all = readableValue(all, raw, refer)
		}
	}
	return all
}

func readableValue(all []string, raw json.RawMessage, refer func(tool string)) []string {
	switch raw[0] {
	case '"':
		if text, err := strict.String("", raw); err == nil && text != "" {
			all = append(all, text)
		}
	case '[':
		items, _ := strict.Array("", raw) // the body is valid
		for _, item := range items {
			all = readableValue(all, item, refer)
		}
	case '{':
		if fields, err := strict.Object("", raw); err == nil {
			all = readable(all, fields, refer)
		}
	}
	return all
}
