package image

import (
	"slices"

	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/imagenote"
)

// MarkSpare marks the images of a conversation that its answer does not need.
func MarkSpare(messages []*chatv1.Message, all []Source) {
	spare, images := imagenote.Spare(messages), map[*llmv1.Image]bool{}
	for _, m := range messages {
		for _, placed := range m.GetImages() {
			images[placed.GetImage()] = spare(m)
		}
	}
	for i := range all {
		all[i].Spare = images[all[i].To]
	}
}

// NoteOmitted puts notes in the place of the images of a conversation that Fill has omitted, or, for a
// model that takes no images, of all that the answer does not need. It returns the fields of these
// images, as distinct paths.
func NoteOmitted(messages []*chatv1.Message, all []Source, takes bool) (fields []string) {
	note, images := imagenote.Unusable, map[*llmv1.Image]bool{}
	for i := range all {
		s := &all[i]
		if !takes {
			s.omit()
		}
		if s.omitted {
			images[s.To], fields = true, append(fields, strict.Path(s.Param))
		}
	}
	if !takes {
		note = imagenote.NoImages
	}
	for _, m := range messages {
		if len(m.GetImages()) > 0 {
			m.Content, m.Images = imagenote.Omit(m, note, func(image *llmv1.Image) bool { return images[image] })
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}
