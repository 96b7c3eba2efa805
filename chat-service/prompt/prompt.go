// Package prompt turns a conversation into the text that its model was trained to continue.
//
// The text is, byte for byte, what Hugging Face transformers makes of the model's own chat template; see package hfjinja
// for how, and for the corners where it is not. Contents go into it verbatim, as transformers and vLLM do it: nothing in
// them is escaped, and a content that contains the text of a special token, such as "<|im_end|>", becomes that token
// when the prompt is tokenized. A user can therefore write what looks like a turn of somebody else; who must not be able
// to has to filter contents before they get here.
//
// A conversation is checked before it is rendered. What is wrong with it is an Invalid *streamerr.Error whose Param names
// the place, such as "messages[2].role". Which roles may follow which is the template's business: what it refuses by
// raise_exception is Invalid too, with the Param "messages", and so is what it fails on, such as a turn that it expects and
// that is not there. Any other failure of a template is Internal.
package prompt

import chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"

// Input is what a template is rendered with.
type Input struct {
	// Messages is the conversation, oldest turn first; at least one.
	Messages []*chatv1.Message
	// AddGenerationPrompt opens the assistant's turn at the end, so that the model answers rather than continues.
	AddGenerationPrompt bool
	// Tools are what the model may call; a template that knows no tools is shown them as hermes has them.
	Tools []*chatv1.Tool
	// Variables is a JSON object of further variables; "" is none.
	Variables string
}

// A Renderer turns a conversation into a prompt. It is safe for concurrent use; its errors are *streamerr.Error.
// Template.Render is the one for models with a chat template.
type Renderer func(Input) (string, error)
