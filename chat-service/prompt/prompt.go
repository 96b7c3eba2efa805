// Package prompt turns a conversation into the text that its model was trained to continue.
//
// The text is identical, byte for byte, to the output of Hugging Face transformers for the model's
// own chat template; package jinja describes how, and the exceptions. Contents are inserted
// verbatim, as in transformers and vLLM: nothing is escaped, and a content with the text of a
// special token, such as "<|im_end|>", becomes that token when the prompt is tokenized. A user can
// therefore forge turns of other roles. A caller that must prevent this has to filter contents
// first.
//
// A template that drops or refuses a part of a conversation would lose it, or end a session. New
// finds out by rendering small conversations (Traits), and Render puts such a part where the template
// writes it: a system text into the leading turn, a call into the text of its turn, a text beside a
// call into a turn of its own. Verbatim does not.
//
// A conversation is checked before it is rendered. A problem is an Invalid *streamerr.Error whose
// Param names its place, such as "messages[2].role". If the template refuses a conversation with
// raise_exception, or fails on it, for example because an expected turn is missing, the conversation
// is rendered in a plainer form; if that fails too, the error is Invalid with the Param "messages".
// All other failures of a template are Internal.
package prompt

import (
	"context"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// Input is the input of a template.
type Input struct {
	// Messages is the conversation, oldest turn first. There must be at least one.
	Messages []*chatv1.Message
	// AddGenerationPrompt opens the assistant's turn at the end, so that the model answers and does
	// not continue the last turn.
	AddGenerationPrompt bool
	// Continue means that the answer continues the last message (Renderer.Prompt).
	Continue bool
	// Tools are the tools that the model may call. The turn of the system describes them for a template
	// that does not.
	Tools []*chatv1.Tool
	// Variables is a JSON object with additional template variables, or "".
	Variables string
}

// A Renderer turns a conversation into a prompt. It is safe for concurrent use, and its errors are
// *streamerr.Error. Template.Render is the Renderer for models with a chat template.
type Renderer func(context.Context, Input) (string, error)
