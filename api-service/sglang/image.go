package sglang

import (
	"encoding/json"
	"fmt"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// images parses image_data into the prompts: the images of the prompt or, for several prompts, an
// array with the images of each prompt. The text of the prompts contains the placeholders.
func (g *generate) images() (all []image.Source, err error) {
	const param = "image_data"
	raw, prompts := g.imageData, g.request.GetPrompts()
	g.imageData = nil
	if len(raw) == 0 {
		return nil, nil
	}
	if !g.batch {
		return imagesOf(param, raw, prompts[0])
	}
	items, err := strict.Array(param, raw)
	if err == nil && len(items) != len(prompts) {
		err = streamerr.InvalidParam(param, "%s has %d elements, for %d prompts", param, len(items), len(prompts))
	}
	for i := 0; i < len(items) && err == nil; i++ {
		var more []image.Source
		more, err = imagesOf(fmt.Sprintf("%s[%d]", param, i), items[i], prompts[i])
		all = append(all, more...)
	}
	return all, err
}

// imagesOf parses the images of one prompt: null, an image, or an array of images. An image is a
// string, or an object with a url. SGLang also accepts file names and tensors; here both are refused.
func imagesOf(param string, raw json.RawMessage, to *chatv1.Prompt) (all []image.Source, err error) {
	if strict.Null(raw) {
		return nil, nil
	}
	items := []json.RawMessage{raw}
	if raw[0] == '[' {
		if items, err = strict.Array(param, raw); err != nil {
			return nil, err
		}
	}
	for i, item := range items {
		at := param
		if raw[0] == '[' {
			at = fmt.Sprintf("%s[%d]", param, i)
		}
		if fields, err := strict.Object(at, item); err == nil && len(fields["url"]) > 0 {
			at, item = at+".url", fields["url"]
		}
		text, err := strict.String(at, item)
		if err != nil {
			return nil, err
		}
		source := image.FromText(at, text)
		to.Images = append(to.Images, source.To)
		all = append(all, source)
	}
	return all, nil
}
