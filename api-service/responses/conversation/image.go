package conversation

import (
	"encoding/json"

	"github.com/whence-dev/whence/api-service/image"
	openai "github.com/whence-dev/whence/api-service/openai/conversation"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/api-service/transcript"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// addParts adds the texts and images of a user's message.
func (c *items) addParts(param string, raw json.RawMessage, to *transcript.Turn) error {
	return eachPart(param, raw, func(at, kind string, members map[string]json.RawMessage) error {
		if kind != "input_image" {
			return text(c.in, at, kind, members, &to.Content, "input_text", "input_image")
		}
		source, err := inputImage(c.in, at, members)
		if err != nil {
			return err
		}
		c.images = append(c.images, source)
		to.Show(source.To)
		return nil
	})
}

// inputImage parses an image. Its detail has no effect: engines choose the resolution.
func inputImage(in *strict.Reading, at string, members map[string]json.RawMessage) (image.Source, error) {
	if err := in.Only(at, members, "type", "image_url", "detail", "file_id"); err != nil {
		return image.Source{}, err
	}
	if raw, ok := members["file_id"]; ok && !strict.Null(raw) {
		return image.Source{}, streamerr.InvalidParam(at+".file_id", "%s.file_id names a file, and files are not stored here; send the image as image_url", at).WithCode(streamerr.CodeUnsupportedField)
	}
	if err := openai.Detail(in, at, members); err != nil {
		return image.Source{}, err
	}
	url, err := strict.Member(at, "image_url", members)
	return image.FromURL(at+".image_url", url), err
}
