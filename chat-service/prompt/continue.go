package prompt

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// endMark stands at the end of the message that an answer continues, while the template renders the
// conversation. It ends with a space, so that a template that trims contents is recognised.
const endMark = "<whence-end-of-the-last-message> "

// Prompt returns the prompt of a conversation. If the answer continues the last message, the prompt
// ends with the content of that message, as with continue_final_message of transformers: what the
// template writes after it is cut off. Trailing white space stays, unless the template trims
// contents.
func (r Renderer) Prompt(ctx context.Context, in Input) (string, error) {
	if !in.Continue || len(in.Messages) == 0 {
		return r(ctx, in)
	}
	last := in.Messages[len(in.Messages)-1]
	if len(last.GetToolCalls()) > 0 {
		return "", streamerr.InvalidParam("messages", "the last message has tool calls, so an answer cannot continue it")
	}
	marked := proto.CloneOf(last)
	marked.Content += endMark
	in.Messages, in.AddGenerationPrompt = append(slices.Clone(in.Messages[:len(in.Messages)-1]), marked), false
	text, err := r(ctx, in)
	if err != nil {
		return "", err
	}
	trimmed := strings.TrimSpace(endMark)
	end := strings.LastIndex(text, trimmed)
	switch {
	case end < 0:
		return "", streamerr.InvalidParam("messages", "the chat template of the model does not write the last message, so an answer cannot continue it")
	case strings.HasPrefix(text[end:], endMark):
		return text[:end], nil
	default:
		return strings.TrimRightFunc(text[:end], unicode.IsSpace), nil
	}
}
