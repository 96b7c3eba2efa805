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
	"iter"

	"github.com/whence-dev/whence/chat-service/choices"
	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/chat-service/restart"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// An Engine answers conversations.
type Engine = stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse]

// A TokenEngine answers token ids.
type TokenEngine = stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// A Starter is an Engine that needs no goroutine while a stream runs over links.
type Starter = stream.Starter[*chatv1.ChatRequest, *chatv1.GenerateResponse]

// A TokenStarter is a TokenEngine that needs no goroutine while a stream runs over links.
type TokenStarter = stream.Starter[*workerv1.TokenRequest, *workerv1.GenerateResponse]

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
func New(m *Model, worker TokenEngine) Engine { return NewStarter(m, worker.Starter()).Sequence() }

// NewStarter is New for Starters. A stream with several choices, or a gathered stream, keeps a
// goroutine.
func NewStarter(m *Model, worker TokenStarter) Starter {
	ranged := restart.Watch(worker.Sequence())
	return func(ctx context.Context, req *chatv1.ChatRequest, yield func(*chatv1.GenerateResponse, error) bool, resume func(func() bool)) (over bool) {
		err := validate(req)
		if err != nil {
			yield(nil, err)
			return true
		}
		prompts, err := m.prepare(ctx, req)
		if err != nil {
			yield(nil, err)
			return true
		}
		if req.GetTellPrompts() {
			yield = tellPrompts(prompts, yield)
		}
		answered := &chatv1.AnsweredChoice{Ids: req.GetAnswered().GetIds()}
		switch {
		case choices.Count(req) > 1:
			m.merged(ctx, ranged, prompts, req)(yield)
			return true
		case req.GetGathered():
			m.choice(ctx, ranged, prompts[0], req.GetStreamId(), 0, answered)(yield)
			return true
		default:
			return prompts[0].start(ctx, worker, prompts[0].request(req.GetStreamId(), 0, answered.GetIds()), yield, resume)
		}
	}
}

// tellPrompts returns yield with the tokens of the prompts in Started.
func tellPrompts(prompts []*tokenPrompt, yield func(*chatv1.GenerateResponse, error) bool) func(*chatv1.GenerateResponse, error) bool {
	return func(out *chatv1.GenerateResponse, err error) bool {
		if started := out.GetStarted(); started != nil {
			started.Prompts = make([]*llmv1.PromptTokens, len(prompts))
			for i, p := range prompts {
				started.Prompts[i] = &llmv1.PromptTokens{Ids: p.ids}
			}
		}
		return yield(out, err)
	}
}

// merged answers a request for several choices.
func (m *Model) merged(ctx context.Context, worker TokenEngine, prompts []*tokenPrompt, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
	each := choices.Each(req)
	return choices.Merge(ctx, req, func(ctx context.Context, choice int) iter.Seq2[*chatv1.GenerateResponse, error] {
		var answered *chatv1.AnsweredChoice
		if choice < len(req.GetAnsweredChoices()) {
			answered = req.GetAnsweredChoices()[choice]
		}
		return m.choice(ctx, worker, prompts[choice/each], stream.ID(ctx), choice%each, answered)
	})
}

// choice generates one answer to a prompt. id names the stream on the hops below, and number is
// added to the seed. answered is the part that another chat-service has delivered.
func (m *Model) choice(ctx context.Context, worker TokenEngine, p *tokenPrompt, id string, number int, answered *chatv1.AnsweredChoice) iter.Seq2[*chatv1.GenerateResponse, error] {
	if end := answered.GetEnd(); end != nil {
		return p.ended(id, end)
	}
	answer := func(ctx context.Context, anew bool) iter.Seq2[*chatv1.GenerateResponse, error] {
		if anew {
			return p.answer(ctx, worker, p.request(id, number, nil))
		}
		return p.answer(ctx, worker, p.request(id, number, answered.GetIds()))
	}
	if p.req.GetGathered() {
		return restart.Gathered(ctx, &m.Restarts, answer)
	}
	return answer(ctx, false)
}
