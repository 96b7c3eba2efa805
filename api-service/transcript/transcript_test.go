package transcript_test

import (
	"testing"

	"github.com/whence-dev/whence/api-service/transcript"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

func TestImagesInTheResultsOfToolsBecomeNotes(t *testing.T) {
	var s transcript.Transcript
	for _, role := range []string{"tool", "user"} {
		turn := s.Begin("", role)
		turn.Show(&llmv1.Image{})
		turn.Content.Write("é")
		turn.Show(&llmv1.Image{})
	}
	messages, _ := s.Messages()
	transcript.OmitImages(messages)
	const note = "[image omitted: this model takes no images]"
	if m := messages[0]; m.GetContent() != note+"é"+note || len(m.GetImages()) != 0 {
		t.Errorf("the result is %v", m)
	}
	if m := messages[1]; m.GetContent() != "é" || len(m.GetImages()) != 2 {
		t.Errorf("the user's message is %v", m)
	}
}

func TestOneImageInTheResultOfAToolBecomesANote(t *testing.T) {
	var s transcript.Transcript
	turn := s.Begin("", "tool")
	turn.Show(&llmv1.Image{})
	turn.Content.Write("é")
	omit := turn.Show(&llmv1.Image{})
	turn.Content.Write("x")
	turn.Show(&llmv1.Image{})
	messages, _ := s.Messages()
	omit()
	omit()
	m := messages[0]
	if m.GetContent() != "é[image omitted]x" || len(m.GetImages()) != 2 || m.GetImages()[0].GetOffset() != 0 || int(m.GetImages()[1].GetOffset()) != len(m.GetContent()) {
		t.Error(m)
	}
	if s.Begin("", "user").Show(&llmv1.Image{}) != nil {
		t.Error("an image of a user can be omitted")
	}
}
