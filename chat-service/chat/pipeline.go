// Package chat turns an engine over token ids into an engine over conversations.
//
//	ChatRequest ─> validate ─> prepare (render, guide, tokenise) ─> one worker stream for each choice
//	     Deltas <─ merge choices <─ restart <─ postprocess (detokenise, stop strings, reasoning, tool calls) <─ Tokens
//
// A request's prompts are rendered and tokenised once, whatever the number of choices. An answer
// that another chat-service began (ChatRequest.answered, answered_choices) is replayed through
// postprocess, so that all stages resume in the right state.
//
// Converse and Compose extend the pipeline to requests of several messages.
package chat

import (
	"context"

	"github.com/whence-dev/whence/chat-service/choices"
	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/chat-service/restart"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// An Engine answers conversations.
type Engine = stream.Engine[*chatv1.ChatRequest, *chatv1.GenerateResponse]

// A TokenEngine answers token ids.
type TokenEngine = stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// A reader takes the answer of a stream.
type reader = stream.Reader[*chatv1.GenerateResponse]

// A Model is everything that the pipeline needs to know about a model.
type Model struct {
	Name          string
	OwnedBy       string
	ContextLength int // tokens of prompt and answer together
	Tokenizer     *tokenizer.Tokenizer
	Checksum      string // checksum of the tokenizer, from tokenizer.Checksum
	HasTemplate   bool   // there is a chat template; without one, Render refuses every conversation
	Render        prompt.Renderer
	Traits        prompt.Traits // of the chat template
	PlacesImages  bool          // prompts can have images
	// Conversation serialises a conversation for engines that render it themselves.
	Conversation func(context.Context, prompt.Input) (string, error)
	ImageToken   *uint32 // the token that stands for an image in prompts; nil if unknown
	Markup       Markup
	Adapters     []string // LoRA adapters of the model; requests use them like model names
	EOS          []uint32 // tokens that end an answer, besides those that the worker knows
	Restarts     restart.Options
	// TextOnly means that this service lacks the model's files: there is no Tokenizer and no Render, and
	// conversations and answers pass as text. See TextOnly.
	TextOnly bool

	// WorkerContext returns the current context length of the workers in tokens, or 0 if unknown.
	// If it is nil, the context length is ContextLength.
	WorkerContext func() int
	// TakesImages reports whether the engine of a worker takes images; nil means that one does.
	TakesImages func() bool
}

// Context returns the current maximum length of a prompt and its answer together, in tokens.
func (m *Model) Context() int {
	if worker := m.workerContext(); worker > 0 {
		return min(worker, m.ContextLength)
	}
	return m.ContextLength
}

func (m *Model) workerContext() int {
	if m.WorkerContext == nil {
		return 0
	}
	return m.WorkerContext()
}

// New returns the pipeline for m over worker.
func New(m *Model, worker TokenEngine) Engine {
	watched := restart.Watch(worker)
	return func(ctx context.Context, req *chatv1.ChatRequest, to reader) {
		err := validate(req)
		if err != nil {
			to.End(err)
			return
		}
		prompts, err := m.prepare(ctx, req)
		if err != nil {
			to.End(err)
			return
		}
		if req.GetTellPrompts() {
			to = &promptTeller{stream.RelayTo(to), prompts}
		}
		answered := &chatv1.AnsweredChoice{Ids: req.GetAnswered().GetIds()}
		switch {
		case choices.Count(req) > 1:
			m.merged(ctx, watched, prompts, req, to)
		case req.GetGathered():
			m.choice(ctx, watched, prompts[0], req.GetStreamId(), 0, answered, to)
		default:
			prompts[0].answer(ctx, worker, prompts[0].request(req.GetStreamId(), 0, answered.GetIds()), true, to)
		}
	}
}

// A promptTeller adds the tokens of the prompts to Started.
type promptTeller struct {
	stream.Relay[*chatv1.GenerateResponse]

	prompts []*tokenPrompt
}

// Item implements stream.Reader.
func (t *promptTeller) Item(on *stream.Loop, out *chatv1.GenerateResponse) (more bool) {
	if started := out.GetStarted(); started != nil {
		started.Prompts = make([]*llmv1.PromptTokens, len(t.prompts))
		for i, p := range t.prompts {
			started.Prompts[i] = &llmv1.PromptTokens{Ids: p.ids}
		}
	}
	return t.Pass(on, out)
}

// merged answers a request for several choices.
func (m *Model) merged(ctx context.Context, worker TokenEngine, prompts []*tokenPrompt, req *chatv1.ChatRequest, to reader) {
	each := choices.Each(req)
	choices.Merge(ctx, req, func(ctx context.Context, choice int, to reader) {
		var answered *chatv1.AnsweredChoice
		if choice < len(req.GetAnsweredChoices()) {
			answered = req.GetAnsweredChoices()[choice]
		}
		m.choice(ctx, worker, prompts[choice/each], stream.ID(ctx), choice%each, answered, to)
	}, to)
}

// choice generates one answer to a prompt. id names the stream on the hops below, and number is
// added to the seed. answered is the part that another chat-service has delivered.
func (m *Model) choice(ctx context.Context, worker TokenEngine, p *tokenPrompt, id string, number int, answered *chatv1.AnsweredChoice, to reader) {
	if end := answered.GetEnd(); end != nil {
		p.ended(ctx, id, end, to)
		return
	}
	answer := func(ctx context.Context, anew bool, to reader) {
		ids := answered.GetIds()
		if anew {
			ids = nil
		}
		p.answer(prefetch.Fork(ctx), worker, p.request(id, number, ids), false, to)
	}
	if p.req.GetGathered() {
		restart.Gathered(ctx, &m.Restarts, answer, to)
		return
	}
	answer(ctx, false, to)
}
