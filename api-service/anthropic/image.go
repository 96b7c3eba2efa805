package anthropic

import (
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
)

// mediaTypes are the media types of images that are read. The bytes of an image decide what it is.
var mediaTypes = append([]string{"", "image/jpg"}, image.Types...)

// image parses an image block. It reports whether the image can be read: files would have to be
// stored here, and engines take few media types.
func (b *block) image() (source image.Source, ok bool, err error) {
	if err := b.in.Only(b.at, b.fields, "type", "source", "cache_control"); err != nil {
		return source, false, err
	}
	from := block{in: b.in, at: b.at + ".source"}
	if raw := b.fields["source"]; !strict.Empty(raw) {
		if from.fields, err = from.in.Members(from.at, raw, "type", "media_type", "data", "url", "file_id"); err != nil {
			return source, false, err
		}
	}
	words := map[string]string{}
	for name := range from.fields {
		if words[name], err = from.optional(name); err != nil {
			return source, false, err
		}
	}
	switch {
	case words["type"] == "url" && words["url"] != "":
		return image.FromURL(from.at+".url", words["url"]), true, nil
	case words["type"] == "base64" && strings.HasPrefix(words["data"], "data:"):
		return image.FromURL(from.at+".data", words["data"]), true, nil
	case words["type"] == "base64" && words["data"] != "" && slices.Contains(mediaTypes, words["media_type"]):
		return image.FromBase64(from.at+".data", words["data"]), true, nil
	}
	return source, false, nil
}
