// Package imagenote puts notes in the place of images that an answer does not need, so that one image
// never ends a session.
package imagenote

import (
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// The notes.
const (
	NoImages = "[image omitted: this model takes no images]"
	Unusable = "[image omitted]"
)

// Spare returns whether the answer to a conversation does not need the images of a message. It needs
// those that the user shows in the turn to be answered. It does not need those of earlier turns, nor
// those in the results of tools; and after such a result, images of the user are a tool's, too: APIs
// whose results have no images put them there.
func Spare(messages []*chatv1.Message) func(*chatv1.Message) bool {
	turn := messages
	for len(turn) > 0 && turn[len(turn)-1].GetRole() == "assistant" { // the answer continues them
		turn = turn[:len(turn)-1]
	}
	i := len(turn) - 1
	for i >= 0 && turn[i].GetRole() != "assistant" && turn[i].GetRole() != "tool" {
		i--
	}
	if i >= 0 && turn[i].GetRole() == "tool" {
		turn = nil
	}
	needed := map[*chatv1.Message]bool{}
	for _, m := range turn[min(i+1, len(turn)):] {
		needed[m] = m.GetRole() == "user"
	}
	return func(m *chatv1.Message) bool { return !needed[m] }
}

// Omit returns the content of a message with a note in the place of each image that omits names, and
// the other images with their places in this content.
func Omit(m *chatv1.Message, note string, omits func(*llmv1.Image) bool) (content string, left []*chatv1.PlacedImage) {
	var b strings.Builder
	at := 0
	for _, placed := range m.GetImages() {
		b.WriteString(m.GetContent()[at:placed.GetOffset()])
		at = int(placed.GetOffset())
		if omits(placed.GetImage()) {
			b.WriteString(note)
		} else {
			left = append(left, &chatv1.PlacedImage{Image: placed.GetImage(), Offset: uint32(b.Len())}) //nolint:gosec // a body is smaller
		}
	}
	b.WriteString(m.GetContent()[at:])
	return b.String(), left
}
