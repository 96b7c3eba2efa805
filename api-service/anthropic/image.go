package anthropic

import (
	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/strict"
)

// image parses an image block.
func (b *block) image() (image.Source, error) {
	if err := b.in.Only(b.at, b.fields, "type", "source", "cache_control"); err != nil {
		return image.Source{}, err
	}
	at := b.at + ".source"
	source, err := strict.Inner(b.at, "source", b.fields)
	if err != nil {
		return image.Source{}, err
	}
	kind, err := strict.Member(at, "type", source)
	if err != nil {
		return image.Source{}, err
	}
	if kind == "url" {
		if err := b.in.Only(at, source, "type", "url"); err != nil {
			return image.Source{}, err
		}
		url, err := strict.Member(at, "url", source)
		return image.FromURL(at+".url", url), err
	}
	if err := strict.OneOf(at+".type", kind, "base64", "url"); err != nil { // a file would have to be stored
		return image.Source{}, err
	}
	if err := b.in.Only(at, source, "type", "media_type", "data"); err != nil {
		return image.Source{}, err
	}
	media, err := strict.Member(at, "media_type", source)
	if err == nil {
		err = strict.OneOf(at+".media_type", media, image.Types...)
	}
	if err != nil {
		return image.Source{}, err
	}
	data, err := strict.Member(at, "data", source)
	return image.FromBase64(at+".data", data), err
}
