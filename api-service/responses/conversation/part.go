package conversation

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/whence-dev/whence/api-service/image"
	openai "github.com/whence-dev/whence/api-service/openai/conversation"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/api-service/transcript"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// content adds a content to a turn: a string, or an array of parts, whose texts are joined. A missing
// content is empty.
func (c *items) content(param string, raw json.RawMessage, to *transcript.Turn) error {
	switch {
	case len(raw) == 0 || strict.Null(raw):
		return nil
	case raw[0] == '"':
		text, err := strict.String(param, raw)
		to.Content.Write(text)
		return err
	case raw[0] == '[':
		parts, err := strict.Array(param, raw)
		for i := 0; err == nil && i < len(parts); i++ {
			err = c.part(fmt.Sprintf("%s[%d]", param, i), parts[i], to)
		}
		return err
	default:
		return strict.Mismatch(param, "a string or an array of parts", raw)
	}
}

// texts are the parts that are texts, and the members that have the texts.
var texts = map[string]string{
	"input_text": "text", "output_text": "text", "text": "text", "reasoning_text": "text", "summary_text": "text", "refusal": "refusal",
}

// otherParts are the parts that nothing here can show to a model.
var otherParts = []string{"input_audio", "input_video", "computer_screenshot", "encrypted_content"}

// isPart reports whether parts of contents have a kind. The result of a tool may have other objects
// with a type, such as GeoJSON.
func isPart(kind string) bool {
	switch kind {
	case "input_image", "image_url", "input_file":
		return true
	}
	return texts[kind] != "" || slices.Contains(otherParts, kind)
}

// part adds a part of a content to a turn.
func (c *items) part(at string, raw json.RawMessage, to *transcript.Turn) error {
	members, err := strict.Object(at, raw)
	if err != nil {
		return err
	}
	for name, raw := range members {
		if strict.Null(raw) {
			delete(members, name)
		}
	}
	kind := "text"
	if members["type"] != nil || members["text"] == nil {
		if kind, err = strict.Member(at, "type", members); err != nil {
			return err
		}
	}
	member, isText := texts[kind]
	switch {
	case isText:
		return c.text(at, member, members, to)
	case kind == "input_image" || kind == "image_url" || kind == "computer_screenshot" && members["image_url"] != nil:
		return c.image(at, kind, members, to)
	case kind == "input_file":
		return c.file(at, members, to)
	case slices.Contains(otherParts, kind):
		return c.leave(at, kind, "["+kind+"]", to)
	default:
		return c.leave(at, "", "[a part of an unknown type]", to)
	}
}

// leave puts a note in the place of a part that is left out. kind is "" for an unknown kind.
func (c *items) leave(at, kind, note string, to *transcript.Turn) error {
	if err := c.in.Unsupported(strings.TrimSuffix(at+"."+kind, ".")); err != nil {
		return err
	}
	to.Content.Separate()
	to.Content.Write(note)
	to.Content.Separate()
	return nil
}

// text adds a part that is a text. annotations and logprobs are notes of an answer about its own
// text.
func (c *items) text(at, member string, members map[string]json.RawMessage, to *transcript.Turn) error {
	c.ignore(at, members, "parsed", "cache_control")
	if err := c.in.Only(at, members, "type", member, "annotations", "logprobs", "parsed", "cache_control", "id"); err != nil {
		return err
	}
	text, err := optional(at, member, members)
	to.Content.Write(text)
	return err
}

// image adds an image to a turn. Only a user's message must have its images: they are a note in other
// turns that cannot have them. The detail of an image has no effect: engines choose the resolution.
func (c *items) image(at, kind string, members map[string]json.RawMessage, to *transcript.Turn) error {
	if err := c.in.Only(at, members, "type", "image_url", "detail", "file_id"); err != nil {
		return err
	}
	role := to.Message.GetRole()
	if members["image_url"] == nil && role != user || role != user && role != "tool" {
		return c.leave(at, kind, "[an image that cannot be shown here]", to)
	}
	if _, ok := members["file_id"]; ok && members["image_url"] == nil {
		return streamerr.InvalidParam(at+".file_id", "%s.file_id names a file, and files are not stored here; send the image as image_url", at).WithCode(streamerr.CodeUnsupportedField)
	}
	if err := openai.Detail(c.in, at, members); err != nil {
		return err
	}
	if raw := members["image_url"]; len(raw) > 0 && raw[0] == '{' { // as in chats
		inner, err := strict.Object(at+".image_url", raw)
		if err != nil {
			return err
		}
		members["image_url"] = inner["url"]
	}
	from, err := strict.Member(at, "image_url", members)
	if err != nil {
		return err
	}
	source := image.FromURL(at+".image_url", from)
	to.Show(source.To)
	c.images = append(c.images, source)
	return nil
}

// file adds the text of a file to a turn, or a note if the file is not a text.
func (c *items) file(at string, members map[string]json.RawMessage, to *transcript.Turn) error {
	if err := c.in.Only(at, members, "type", "file_data", "file_id", "file_url", "filename", "detail"); err != nil {
		return err
	}
	name, err := optional(at, "filename", members)
	if err != nil {
		return err
	}
	data, err := optional(at, "file_data", members)
	if err != nil {
		return err
	}
	label := strings.TrimSpace("file " + name)
	text, ok := fileText(data)
	if !ok {
		return c.leave(at, "input_file", "["+label+", which cannot be read here]", to)
	}
	to.Content.Separate()
	to.Content.Write("[" + label + "]\n" + text)
	to.Content.Separate()
	return nil
}

// fileText returns the text of a file in a data: URL or in base64. ok is false if the file is not a
// text, whatever its type says.
func fileText(data string) (text string, ok bool) {
	encoded, isURL := strings.CutPrefix(data, "data:")
	isBase64 := true
	if isURL {
		var head string
		head, encoded, ok = strings.Cut(encoded, ",")
		isBase64 = strings.HasSuffix(head, ";base64")
		if !ok {
			return "", false
		}
	}
	var decoded []byte
	if isBase64 {
		var err error
		if decoded, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "=")); err != nil {
			return "", false
		}
	} else {
		unescaped, err := url.PathUnescape(encoded)
		if err != nil {
			return "", false
		}
		decoded = []byte(unescaped)
	}
	control := func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\r\f", r) }
	if len(decoded) == 0 && !isURL || !utf8.Valid(decoded) || bytes.ContainsFunc(decoded, control) || bytes.HasPrefix(decoded, []byte("%PDF-")) {
		return "", false
	}
	return string(decoded), true
}

// optional parses a string that an object may have.
func optional(at, name string, members map[string]json.RawMessage) (string, error) {
	raw, ok := members[name]
	if !ok || strict.Null(raw) {
		return "", nil
	}
	return strict.String(at+"."+name, raw)
}
