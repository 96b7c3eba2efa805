package conversation

import (
	"encoding/json"

	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
)

// imageURL parses the image of a part. Its detail has no effect: engines choose the resolution.
func imageURL(in *strict.Reading, at string, part map[string]json.RawMessage) (image.Source, error) {
	if err := in.Only(at, part, "type", "image_url"); err != nil {
		return image.Source{}, err
	}
	members, err := strict.Inner(at, "image_url", part)
	at += ".image_url"
	if err == nil {
		err = in.Only(at, members, "url", "detail")
	}
	if err != nil {
		return image.Source{}, err
	}
	if err := Detail(in, at, members); err != nil {
		return image.Source{}, err
	}
	url, err := strict.Member(at, "url", members)
	return image.FromURL(at+".url", url), err
}

// Detail checks the detail of an image, which may be missing.
func Detail(in *strict.Reading, at string, members map[string]json.RawMessage) error {
	raw, ok := members["detail"]
	if !ok || strict.Null(raw) {
		return nil
	}
	word, err := strict.String(at+".detail", raw)
	if err != nil {
		return err
	}
	_, err = in.Hint(at+".detail", word, "auto", "low", "high", "original")
	return err
}
