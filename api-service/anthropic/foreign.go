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
	r := reader{refer: refer}
	r.object(b.fields)
	words := strings.Join(r.texts, "\n")
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

// maxDepth bounds the depth of the objects and arrays of a block that are read. The deepest is the
// text of a document that a tool has fetched.
const maxDepth = 12

// A reader collects the texts within a block.
type reader struct {
	texts []string
	refer func(tool string) // called with the names of tools
	depth int
}

func (r *reader) object(fields map[string]json.RawMessage) {
	if raw := fields["source"]; len(raw) > 0 && raw[0] == '{' {
		if text, ok := sourceOf(raw).text(); ok {
			fields = maps.Clone(fields)
			fields["source"] = marshal(text)
		}
	}
	for _, name := range readableMembers {
		if raw := fields[name]; len(raw) > 0 {
			if tool, err := strict.String(name, raw); err == nil && name == "tool_name" {
				r.refer(tool)
			}
			r.value(raw)
		}
	}
}

func (r *reader) value(raw json.RawMessage) {
	if r.depth++; r.depth <= maxDepth {
		switch raw[0] {
		case '"':
			if text, err := strict.String("", raw); err == nil && text != "" {
				r.texts = append(r.texts, text)
			}
		case '[':
			items, _ := strict.Array("", raw) // the body is valid
			for _, item := range items {
				r.value(item)
			}
		case '{':
			if fields, err := strict.Object("", raw); err == nil {
				r.object(fields)
			}
		}
	}
	r.depth--
}
