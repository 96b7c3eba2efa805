// Package chat is the pipeline of chat-service: stages that make of an engine over token ids an engine over
// conversations.
//
//	ChatRequest ─> Validate ─> Choices ─> Restart ─> Echo ─> Render ─> Answer ─> StopStrings ─> Detokenise ─> Tokenise ─> worker
//	     Deltas <─────────────────┴──────────┴────────┴──────────────────┴──────────┴──────────────┴────── Tokens <───────┘
//
// An answer that was begun elsewhere (ChatRequest.answered) goes through all of them again, as if the worker had just given it.
//
// Converse and Compose make of the pipeline engines over requests that come in several messages.
package chat

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/choices"
	"github.com/whence-dev/whence/chat-service/detoken"
	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/chat-service/reasoning"
	"github.com/whence-dev/whence/chat-service/restart"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// An Engine answers conversations.
type Engine = stream.Engine[*chatv1.ChatRequest, *chatv1.GenerateResponse]

// A TokenEngine answers token ids.
type TokenEngine = stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// A Model is what the pipeline must know of a model.
type Model struct {
	Name          string
	OwnedBy       string
	ContextLength int // tokens of prompt and answer together
	Tokenizer     *tokenizer.Tokenizer
	Checksum      string // of the tokenizer, as tokenizer.Checksum has it
	Render        prompt.Renderer
	Written       Written
	EOS           []uint32 // tokens that end an answer, beside those that the worker knows
	Restarts      restart.Options

	// WorkerContext returns how many tokens the context of a worker holds now, 0 if that is not known; nil for ContextLength.
	WorkerContext func() int
}

// Context returns how many tokens a prompt and its answer may have together now.
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
	tokens := again(oneByOne(found(tokenise(m, restart.Watch(worker)))))
	one := echo(m, render(m, tell(answer(m, stopStrings(detoken.New(m.Tokenizer, m.decoding, tokens))))))
	return validate(choices.New(restart.New(m.Restarts, one)))
}

// A rendered request is one whose conversation has become text, or whose prompt was none.
type rendered struct {
	req     *chatv1.ChatRequest
	text    string
	special bool           // the tokenizer's post-processor adds its tokens
	ids     []uint32       // instead of text
	from    string         // the field that it comes from
	tools   []*chatv1.Tool // that the model has been told of
	thinks  bool           // what the model thinks is to be parted from what it says
	opened  bool           // the text ends where the model is to think
	told    *told          // nil where nobody asks which tokens they are
	cached  *uint32        // tokens of the prompt that the worker had in its cache, once it has said so
}

func (r rendered) are() string {
	if r.from == "prompt" {
		return "prompt is"
	}
	return "messages are"
}

// decoding says which special tokens of an answer become text.
func (m *Model) decoding(r rendered) detoken.Special {
	return detoken.Special{Keep: r.req.GetKeepSpecial(), Shown: m.shown(r)}
}

// render makes one text of the conversation, by the model's chat template.
func render(m *Model, next stream.Engine[rendered, *chatv1.GenerateResponse]) Engine {
	return func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
		if p := req.GetPrompts(); len(p) > 0 {
			return next(ctx, rendered{req: req, text: p[0].GetText(), special: true, ids: p[0].GetIds().GetIds(), from: "prompt", cached: new(uint32)})
		}
		tools, err := m.offered(req)
		if err != nil {
			return stream.Fail[*chatv1.GenerateResponse](err)
		}
		text, err := m.Render(prompt.Input{Messages: req.GetMessages(), AddGenerationPrompt: true, Tools: tools, Variables: req.GetTemplateVariables()})
		if err != nil {
			return stream.Fail[*chatv1.GenerateResponse](err)
		}
		// The template has written the tokens that begin a text, so the tokenizer must not add them again.
		r := rendered{req: req, text: text, from: "messages", tools: tools, cached: new(uint32)}
		r.thinks = m.Written.Thinks && separates(req)
		r.opened = m.Written.Thinks && strings.HasSuffix(strings.TrimSpace(text), reasoning.Open)
		if r.req, err = m.guide(r); err != nil {
			return stream.Fail[*chatv1.GenerateResponse](err)
		}
		return next(ctx, r)
	}
}

// tokenise makes token ids of the text, and refuses what the context cannot hold.
func tokenise(m *Model, next TokenEngine) stream.Engine[rendered, *workerv1.GenerateResponse] {
	return func(ctx context.Context, r rendered) iter.Seq2[*workerv1.GenerateResponse, error] {
		ids := r.ids
		if ids == nil {
			ids = m.Tokenizer.Encode(r.text, r.special)
		}
		asked, length := int(r.req.GetSampling().GetMaxTokens()), m.Context()
		switch {
		case len(ids) >= length:
			return stream.Fail[*workerv1.GenerateResponse](streamerr.InvalidParam(r.from,
				"the %s %d tokens long; %s has a context of %d tokens, for %s and answer together", r.are(), len(ids), m.Name, length, r.from))
		case asked > length-len(ids):
			return stream.Fail[*workerv1.GenerateResponse](streamerr.InvalidParam("sampling.max_tokens",
				"the %s %d tokens long and max_tokens is %d; %s has a context of %d tokens, for both together", r.are(), len(ids), asked, m.Name, length))
		}
		answered := r.req.GetAnswered().GetIds()
		for _, id := range answered {
			if int64(id) >= int64(m.Tokenizer.VocabSize()) {
				return stream.Fail[*workerv1.GenerateResponse](streamerr.InvalidParam("answered", "token id %d is not below %d, the size of the vocabulary", id, m.Tokenizer.VocabSize()))
			}
		}
		if room := cmp.Or(asked, length-len(ids)); len(answered) >= room {
			return complete(r.req.GetStreamId(), m.Name, len(ids), room)
		}
		return next(ctx, &workerv1.TokenRequest{
			StreamId: r.req.GetStreamId(), Model: m.Name, Prompt: slices.Concat(ids, answered), Generated: uint32(len(answered)),
			Sampling: sampling(m, r.req.GetSampling(), length-len(ids)), Claim: r.req.GetClaim(), Session: r.req.GetSession(),
		})
	}
}

// sampling is as it was asked, with the ends that the worker does not know: the model's tokens, and a context that is shorter
// than its own.
func sampling(m *Model, asked *streamv1.Sampling, room int) *streamv1.Sampling {
	shorter := m.workerContext() > m.ContextLength && (asked == nil || asked.MaxTokens == nil)
	ends := len(m.EOS) > 0 && !asked.GetIgnoreEos()
	if !shorter && !ends {
		return asked
	}
	if asked = proto.CloneOf(asked); asked == nil {
		asked = &streamv1.Sampling{}
	}
	if shorter {
		asked.MaxTokens = new(uint32(room))
	}
	if ends {
		asked.StopTokenIds = append(asked.StopTokenIds, m.EOS...)
	}
	return asked
}
