package imagenote_test

import (
	"strings"
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/imagenote"
)

// TestSpare: a conversation is the first letters of its roles; those whose images the answer needs are
// capitals.
func TestSpare(t *testing.T) {
	roles := map[string]string{"s": "system", "u": "user", "a": "assistant", "t": "tool"}
	for _, want := range []string{"", "U", "sUsU", "uaU", "uauaUU", "Ua", "uaUa", "uat", "uatu", "uatuaU", "uatusu", "uatuaa", "uaaUaa", "a", "t"} {
		var messages []*chatv1.Message
		for _, r := range strings.ToLower(want) {
			messages = append(messages, &chatv1.Message{Role: roles[string(r)]})
		}
		spare, got := imagenote.Spare(messages), ""
		for i, m := range messages {
			if letter := want[i : i+1]; spare(m) {
				got += strings.ToLower(letter)
			} else {
				got += strings.ToUpper(letter)
			}
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestOmit(t *testing.T) {
	images := []*llmv1.Image{{}, {}, {}, {}}
	m := &chatv1.Message{Content: "éx"}
	for i, offset := range []uint32{0, 2, 2, 3} {
		m.Images = append(m.Images, &chatv1.PlacedImage{Image: images[i], Offset: offset})
	}
	content, left := imagenote.Omit(m, "[-]", func(image *llmv1.Image) bool { return image == images[0] || image == images[2] })
	if content != "[-]é[-]x" || len(left) != 2 || left[0].GetImage() != images[1] || left[0].GetOffset() != 5 || left[1].GetImage() != images[3] || left[1].GetOffset() != 9 {
		t.Errorf("%q %v", content, left)
	}
	if len(m.GetImages()) != 4 || m.GetContent() != "éx" {
		t.Error("the message has changed:", m)
	}
}
