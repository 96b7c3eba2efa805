package converse

import (
	"fmt"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// checkImages checks the images of a client's message, and sets their media types. The limits are
// for all images of the conversation together.
func (t *talk) checkImages(in *chatv1.ConverseRequest) *streamerr.Error {
	err := t.checkPlaced("chat", in.GetChat().GetMessages())
	if err == nil {
		err = t.checkPlaced("turn", in.GetTurn().GetMessages())
	}
	if err != nil {
		return streamerr.As(err)
	}
	for i, prompt := range in.GetChat().GetPrompts() {
		for j, image := range prompt.GetImages() {
			if err := t.images.Check(fmt.Sprintf("chat.prompts[%d].images[%d]", i, j), image); err != nil {
				return streamerr.As(err)
			}
		}
	}
	return nil
}

// checkPlaced checks the images of messages. at is the field with the messages.
func (t *talk) checkPlaced(at string, messages []*chatv1.Message) error {
	for i, message := range messages {
		for j, placed := range message.GetImages() {
			if err := t.images.Check(fmt.Sprintf("%s.messages[%d].images[%d]", at, i, j), placed.GetImage()); err != nil {
				return err
			}
		}
	}
	return nil
}
