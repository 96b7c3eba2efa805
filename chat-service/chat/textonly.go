package chat

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TextOnly returns a model without files. Its conversations pass to the worker's server as the client has
// sent them, and the server parses reasoning and tool calls.
func TextOnly(name, ownedBy string) *Model {
	return &Model{Name: name, OwnedBy: ownedBy, ContextLength: textonly.NoLimit, Checksum: textonly.Checksum, PlacesImages: true, TextOnly: true}
}

// needsFiles refuses a part of a request for which a service would need the model's files.
func needsFiles(param, what string) *streamerr.Error {
	return streamerr.InvalidParam(param, "%s cannot be had here: this service has no files of the model (--model %s), and passes text to the server that generates", what, textonly.Model).
		WithCode(streamerr.CodeUnsupportedField)
}

// Counts returns an error if this service has no tokenizer.
func (m *Model) Counts(param string) error {
	if m.TextOnly {
		return needsFiles(param, "token ids, and counts of tokens,")
	}
	return nil
}

// checkTextOnly refuses a request that only a service with the model's files could answer.
func checkTextOnly(req *chatv1.ChatRequest) error {
	answered := len(req.GetAnswered().GetIds())
	for _, choice := range req.GetAnsweredChoices() {
		answered += len(choice.GetIds())
	}
	switch {
	case req.GetTellPrompts():
		return needsFiles("return_token_ids", "token ids")
	case answered > 0:
		return needsFiles("answered", "the continuation of an answer")
	case req.GetKeepSpecial():
		return needsFiles("skip_special_tokens", "special tokens in the text")
	case !separates(req):
		return needsFiles("separate_reasoning", "reasoning within the text")
	}
	return nil
}

// passMessages prepares a conversation that the server renders.
func (m *Model) passMessages(_ context.Context, req *chatv1.ChatRequest) (*tokenPrompt, error) {
	in := prompt.Input{
		Messages: req.GetMessages(), AddGenerationPrompt: !req.GetNoGenerationPrompt() && !req.GetContinueMessage(), Continue: req.GetContinueMessage(),
		Tools: req.GetTools(), Variables: req.GetTemplateVariables(),
	}
	s, most := withoutLimit(req.GetSampling())
	text, err := prompt.Unrendered(in, prompt.Request{MaxTokens: most, Choice: req.GetToolChoice(), Parallel: req.ParallelToolCalls})
	if err != nil {
		return nil, err
	}
	return m.pass(&tokenPrompt{model: m, req: req, from: "messages", sampling: s, images: prompt.Images(in.Messages), conversation: text})
}

// passPrompt prepares a raw prompt that the server tokenizes.
func (m *Model) passPrompt(req *chatv1.ChatRequest, text *chatv1.Prompt) (*tokenPrompt, error) {
	if text.GetIds() != nil {
		return nil, needsFiles("prompt", "prompts of token ids")
	}
	if len(text.GetImages()) > 0 {
		return nil, needsFiles("prompt", "images in a prompt")
	}
	s, most := withoutLimit(req.GetSampling())
	p := &tokenPrompt{model: m, req: req, from: "prompt", sampling: s}
	if req.GetEcho() {
		p.echo = text.GetText()
	}
	var err error
	if p.conversation, err = prompt.Raw(text.GetText(), most); err != nil {
		return nil, err
	}
	return m.pass(p)
}

// pass completes a prompt that passes as text. The prompt's words take at most half the context, because
// only the server knows how many tokens they are, and refuses a prompt that is too long.
func (m *Model) pass(p *tokenPrompt) (*tokenPrompt, error) {
	p.ids = textonly.Words(p.conversation)
	if most := max(1, m.Context()/2); len(p.ids) > most {
		p.ids = p.ids[:most]
	}
	p.record.Tokens, p.room = len(p.ids), textonly.NoLimit
	return p, p.checkSize()
}

// withoutLimit returns sampling without max_tokens, and max_tokens. Only the server counts tokens, so no
// hop here may end an answer by a count of its own.
func withoutLimit(s *llmv1.Sampling) (*llmv1.Sampling, *uint32) {
	if s == nil || s.MaxTokens == nil {
		return s, nil
	}
	without := proto.CloneOf(s)
	without.MaxTokens = nil
	return without, s.MaxTokens
}
