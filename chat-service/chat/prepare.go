package chat

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/choices"
	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/chat-service/reasoning"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A tokenPrompt holds the token ids of a prompt and everything that its answers need. The answers
// of all choices share it, so it is immutable, except for record.
type tokenPrompt struct {
	model    *Model
	req      *chatv1.ChatRequest
	ids      []uint32
	record   ledger.Prompt // counts ids in the record of the stream
	sampling *llmv1.Sampling
	room     int             // maximum tokens of the answer
	echo     string          // the text that each answer begins with
	scored   bool            // echo has the log-probabilities of its tokens
	from     string          // the field of the prompt: "prompt" or "messages"
	tools    []*chatv1.Tool  // the tools in the prompt
	form     *reasoning.Form // how the model marks reasoning apart from its calls; nil if it does not
	thinks   bool            // reasoning is separated from text
	opened   bool            // the prompt ends inside the model's reasoning

	images       []*llmv1.Image
	conversation string // for engines that render it themselves; empty without images, unless the model is TextOnly
}

// prepare tokenises a request's prompts or its conversation.
func (m *Model) prepare(ctx context.Context, req *chatv1.ChatRequest) ([]*tokenPrompt, error) {
	messages, each := m.prepareMessages, m.preparePrompt
	if m.TextOnly {
		if err := checkTextOnly(req); err != nil {
			return nil, err
		}
		messages, each = m.passMessages, m.passPrompt
	}
	if len(req.GetPrompts()) == 0 {
		p, err := messages(ctx, req)
		return []*tokenPrompt{p}, err
	}
	all := make([]*tokenPrompt, len(req.GetPrompts()))
	for i, text := range req.GetPrompts() {
		p, err := each(req, text)
		if err != nil && len(all) > 1 {
			err = choices.OfPrompt(err, i)
		}
		if err != nil {
			return nil, err
		}
		all[i] = p
	}
	return all, nil
}

// preparePrompt prepares a raw prompt.
func (m *Model) preparePrompt(req *chatv1.ChatRequest, text *chatv1.Prompt) (*tokenPrompt, error) {
	p := &tokenPrompt{model: m, req: req, from: "prompt", sampling: req.GetSampling(), ids: text.GetIds().GetIds(), echo: prompt.Clean(text.GetText()), images: text.GetImages()}
	if p.ids == nil {
		ids, err := m.EncodeText(p.echo, true)
		if err != nil {
			return nil, err
		}
		p.ids = ids
	} else if req.GetEcho() {
		p.echo = m.Tokenizer.Decode(p.ids, !req.GetKeepSpecial())
	}
	if !req.GetEcho() {
		p.echo = ""
	} else if p.sampling != nil && p.sampling.Logprobs != nil {
		p.scored, p.sampling = true, proto.CloneOf(p.sampling)
		p.sampling.PromptLogprobs = true
	}
	return p, p.fit()
}

// prepareMessages renders a conversation with the model's chat template.
func (m *Model) prepareMessages(ctx context.Context, req *chatv1.ChatRequest) (*tokenPrompt, error) {
	tools, err := m.Offered(req)
	if err != nil {
		return nil, err
	}
	in := prompt.Input{
		Messages: m.Shown(req.GetMessages()), AddGenerationPrompt: !req.GetNoGenerationPrompt() && !req.GetContinueMessage(), Continue: req.GetContinueMessage(),
		Tools: tools, Variables: req.GetTemplateVariables(),
	}
	text, err := m.Render.Prompt(ctx, in)
	if err != nil {
		return nil, err
	}
	p := &tokenPrompt{model: m, req: req, from: "messages", tools: tools, images: prompt.Images(in.Messages)}
	if len(p.images) > 0 {
		if req.GetNoGenerationPrompt() && !req.GetContinueMessage() {
			return nil, streamerr.InvalidParam("no_generation_prompt", "a conversation with images must open the assistant's turn, or continue the last message")
		}
		if p.conversation, err = m.Conversation(ctx, in); err != nil {
			return nil, err
		}
	}
	if form := m.Markup.thinks(); form != nil {
		p.form = form.In(text)
		p.thinks, p.opened = separates(req), p.form.Opened(text)
	}
	if p.sampling, err = m.guide(p, text); err != nil {
		return nil, err
	}
	if p.ids, err = m.EncodeText(text, false); err != nil { // the template has written the tokens that begin a text
		return nil, err
	}
	return p, p.fit()
}

// Shown returns a conversation in which notes replace the images that neither the template nor any
// engine of the model takes. Users' images stay, and are refused later.
func (m *Model) Shown(messages []*chatv1.Message) []*chatv1.Message {
	if m.PlacesImages && (m.TakesImages == nil || m.TakesImages()) {
		return messages
	}
	return prompt.WithoutImages(messages)
}

// EncodeText returns the ids of a text. Its error says that the model's tokenizer is at fault.
func (m *Model) EncodeText(text string, addSpecial bool) ([]uint32, error) {
	ids, err := m.Tokenizer.EncodeText(text, addSpecial)
	if err != nil {
		return nil, &streamerr.Error{Reason: streamerr.Internal, Message: "the tokenizer of the model cannot encode this text: " + err.Error(), Cause: err}
	}
	return ids, nil
}

// maxShown bounds the size of a prompt with images in a request to a worker, in bytes, below the
// maximum size of a message. For a conversation it bounds the images of all turns together.
const maxShown = rpc.MaxRequest - 64<<10

// checkSize refuses a prompt with images, or a conversation as text, that does not fit into a message to
// a worker.
func (p *tokenPrompt) checkSize() error {
	if len(p.images) == 0 && p.conversation == "" {
		return nil
	}
	size := len(p.conversation) + 5*len(p.ids) // maximum size of an encoded id
	for _, image := range p.images {
		size += len(image.GetData())
	}
	if size > maxShown {
		return streamerr.InvalidParam(p.from, "the text of the request and its images have %d bytes together; at most %d are allowed", size, maxShown)
	}
	return nil
}

// beforeImages returns the number of tokens before the first image, or 0 if its position is
// unknown.
func (p *tokenPrompt) beforeImages() uint32 {
	if len(p.images) == 0 || p.model.ImageToken == nil {
		return 0
	}
	return uint32(max(0, slices.Index(p.ids, *p.model.ImageToken)))
}

// fit refuses a prompt that leaves no room in the context, or whose images leave no room in a
// message. It caps max_tokens and min_tokens at the room. It adds to the sampling what the worker
// does not know: the model's end tokens, and a context limit below the worker's.
func (p *tokenPrompt) fit() error {
	if err := p.checkSize(); err != nil {
		return err
	}
	m := p.model
	p.record.Tokens = len(p.ids)
	asked, length := int(p.sampling.GetMaxTokens()), m.Context()
	if p.room = length - len(p.ids); p.room <= 0 {
		return streamerr.TooLong(p.from, len(p.ids), length)
	}
	if err := p.checkIDs("answered", p.req.GetAnswered().GetIds()); err != nil {
		return err
	}
	for i, choice := range p.req.GetAnsweredChoices() {
		if err := p.checkIDs(fmt.Sprintf("answered_choices[%d]", i), choice.GetIds()); err != nil {
			return err
		}
	}
	unlimited := p.sampling == nil || p.sampling.MaxTokens == nil
	caps := asked > p.room || unlimited && m.workerContext() > m.ContextLength
	ends := len(m.EOS) > 0 && !p.sampling.GetIgnoreEos()
	if caps || ends {
		if p.sampling = proto.CloneOf(p.sampling); p.sampling == nil {
			p.sampling = &llmv1.Sampling{}
		}
	}
	if caps {
		p.sampling.MaxTokens = new(uint32(p.room))
		if p.sampling.GetMinTokens() > uint32(p.room) {
			p.sampling.MinTokens = p.sampling.MaxTokens
		}
	}
	if ends {
		p.sampling.StopTokenIds = append(p.sampling.StopTokenIds, m.EOS...)
	}
	switch {
	case asked > 0:
		p.room = min(p.room, asked)
	case !unlimited && p.req.GetEcho(): // the prompt alone
		p.room = 0
		if p.scored {
			p.sampling.MaxTokens = new(uint32(1)) // of the worker, which reads the prompt
		}
	}
	return nil
}

// checkIDs refuses token ids that are not in the model's vocabulary.
func (p *tokenPrompt) checkIDs(field string, ids []uint32) error {
	size := p.model.Tokenizer.VocabSize()
	for _, id := range ids {
		if int64(id) >= int64(size) {
			return streamerr.InvalidParam(field, "token id %d is not below %d, the size of the vocabulary", id, size)
		}
	}
	return nil
}

// calls reports whether the answer is parsed for tool calls or channels. The completion of a raw
// prompt is always plain text.
func (p *tokenPrompt) calls() bool {
	format := p.model.Markup.Calls
	return p.from != "prompt" && format != nil && (len(p.tools) > 0 || format.Thinks)
}

// known reports whether the request has a tool of this name.
func (p *tokenPrompt) known(tool string) bool {
	return slices.ContainsFunc(p.tools, func(t *chatv1.Tool) bool { return t.GetName() == tool })
}
