package conversation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// content parses a string, a part, or an array of parts, into a message whose role is known. Only
// assistants and tools may leave it out, and the result of a tool may be any JSON.
func (c *Conversation) content(param string, raw json.RawMessage, m *chatv1.Message) (err error) {
	result := m.GetRole() == "tool" || m.GetRole() == "function"
	switch {
	case strict.Null(raw), len(raw) > 1 && raw[0] == '{' && strict.Empty(raw) && !result, len(raw) == 0 && (result || m.GetRole() == "assistant"):
		return nil
	case len(raw) == 0:
		return streamerr.InvalidParam(param, "%s is missing", param).WithCode(streamerr.CodeMissing)
	case raw[0] == '"':
		m.Content, err = strict.String(param, raw)
		return err
	case raw[0] != '[' && result:
		m.Content = string(raw)
		return nil
	case raw[0] == '{': // one part
		raw = slices.Concat(json.RawMessage("["), raw, json.RawMessage("]"))
	case raw[0] != '[':
		return strict.Mismatch(param, "a string or an array of parts", raw)
	}
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	p := parts{Conversation: c, to: m}
	for i, raw := range items {
		if err := p.add(fmt.Sprintf("%s[%d]", param, i), raw); err != nil {
			return err
		}
	}
	m.Content = p.text.String()
	m.Reasoning += p.thoughts.String()
	return nil
}

// parts joins the parts of a content.
type parts struct {
	*Conversation
	to   *chatv1.Message
	text strings.Builder
	// thoughts follow the reasoning that stands beside the content.
	thoughts strings.Builder
}

// foreign are the kinds of parts that other APIs and servers have. Their names may stand in
// whence-ignored.
var foreign = []string{
	"audio", "audio_url", "document", "file", "image", "image_url", "input_audio", "input_file", "input_image", "reasoning", "redacted_thinking",
	"search_result", "thinking", "tool_reference", "tool_result", "tool_use", "video", "video_url",
}

func (p *parts) add(at string, raw json.RawMessage) error {
	if raw[0] == '"' {
		text, err := strict.String(at, raw)
		p.text.WriteString(text)
		return err
	}
	part, err := strict.Object(at, raw)
	if err != nil {
		return err
	}
	kind, err := kindOf(at, part)
	if err != nil {
		return err
	}
	assistant, shows := p.to.GetRole() == "assistant", p.to.GetRole() == "user" || p.to.GetRole() == "tool"
	switch kind {
	case "text", "input_text", "output_text":
		return p.write(at, "text", part)
	case "refusal":
		return p.write(at, "refusal", part)
	case "thinking", "reasoning", "redacted_thinking":
		if assistant {
			thought := thoughts(slices.Concat(json.RawMessage("["), raw, json.RawMessage("]")))
			if p.thoughts.WriteString(thought); thought == "" {
				p.in.Ignore(at + "." + kind)
			}
			return nil
		}
	case "image_url", "input_image", "image":
		source, err := imageOf(p.in, at, kind, part)
		if err == nil && shows && source.To != nil {
			p.Images = append(p.Images, source)
			p.to.Images = append(p.to.Images, &chatv1.PlacedImage{Image: source.To, Offset: uint32(p.text.Len())}) //nolint:gosec // a body is smaller
		}
		if err != nil || shows && source.To != nil {
			return err
		}
	}
	return p.note(at, kind, part)
}

// kindOf returns the type of a part, or "text" or "image_url" for a part without a type that has
// such a member.
func kindOf(at string, part map[string]json.RawMessage) (string, error) {
	for _, member := range []string{"text", "image_url"} {
		if _, ok := part[member]; ok && part["type"] == nil {
			return member, nil
		}
	}
	return strict.Member(at, "type", part)
}

// write adds a member of a part to the text.
func (p *parts) write(at, name string, part map[string]json.RawMessage) error {
	for _, idle := range []string{"cache_control", "annotations", "parsed"} {
		if !strict.Empty(part[idle]) {
			p.in.Ignore(at + "." + idle)
		}
		delete(part, idle)
	}
	if err := p.in.Only(at, part, "type", name); err != nil {
		return err
	}
	if raw, ok := part[name]; ok && strict.Null(raw) {
		return nil
	}
	text, err := strict.Member(at, name, part)
	p.text.WriteString(text)
	return err
}

// note writes a note in the place of a part that the model cannot get, or the text of such a part.
func (p *parts) note(at, kind string, part map[string]json.RawMessage) error {
	path := at
	if slices.Contains(foreign, kind) {
		path += "." + kind
	}
	if err := p.in.Unsupported(path); err != nil {
		return err
	}
	if text, err := strict.Member(at, "text", part); err == nil {
		p.text.WriteString(text)
		return nil
	}
	var file struct{ Filename, Title string }
	if raw, ok := part["file"]; ok {
		_ = json.Unmarshal(raw, &file) // the name is part of the note, if there is one
	}
	note := strict.Printable(strings.NewReplacer("input_image", "image", "image_url", "image").Replace(kind)) + " omitted"
	if name := cmp.Or(file.Filename, file.Title); name != "" {
		note += ": " + strict.Printable(name)
	}
	p.text.WriteString("[" + note + "]")
	return nil
}

// imageOf parses the image of a part in the form of OpenAI, of Anthropic, or of MCP. A source
// without an image means that the part has none of these forms.
func imageOf(in *strict.Reading, at, kind string, part map[string]json.RawMessage) (image.Source, error) {
	if kind == "image" {
		var form struct {
			Source struct{ Type, Data, URL string }
			Data   string
		}
		if raw, ok := part["source"]; ok {
			_ = json.Unmarshal(raw, &form.Source) // of another form, which has no data
		}
		if raw, ok := part["data"]; ok {
			_ = json.Unmarshal(raw, &form.Data)
		}
		switch data := cmp.Or(form.Source.Data, form.Data); {
		case data != "":
			return image.FromBase64(at, data), nil
		case form.Source.URL != "":
			return image.FromURL(at, form.Source.URL), nil
		}
		return image.Source{}, nil
	}
	if err := in.Only(at, part, "type", "image_url", "detail", "cache_control"); err != nil {
		return image.Source{}, err
	}
	if err := Detail(in, at, part); err != nil {
		return image.Source{}, err
	}
	raw, ok := part["image_url"]
	at += ".image_url"
	switch {
	case !ok || strict.Null(raw):
		return image.Source{}, streamerr.InvalidParam(at, "%s is missing", at).WithCode(streamerr.CodeMissing)
	case raw[0] == '"':
		url, err := strict.String(at, raw)
		return image.FromURL(at, url), err
	}
	members, err := strict.Object(at, raw)
	if err == nil {
		err = in.Only(at, members, "url", "detail")
	}
	if err == nil {
		err = Detail(in, at, members)
	}
	if err != nil {
		return image.Source{}, err
	}
	url, err := strict.Member(at, "url", members)
	return image.FromURL(at+".url", url), err
}

// Detail checks the detail of an image, which may be missing. It has no effect: engines choose the
// resolution.
func Detail(in *strict.Reading, at string, members map[string]json.RawMessage) error {
	raw, ok := members["detail"]
	if !ok || strict.Empty(raw) {
		return nil
	}
	word, err := strict.String(at+".detail", raw)
	if err != nil {
		return err
	}
	_, err = in.Hint(at+".detail", word, "auto", "low", "high", "original")
	return err
}
