// Package chat is the pipeline of chat-service: stages that make of an engine over token ids an engine over
// conversations.
//
//	ChatRequest ─> Validate ─> StopStrings ─> Detokenise ─> Render ─> Tokenise ─> worker
//	     Deltas <──────────────────┴──────────────┴──────────── Tokens <───────────┘
package chat

import (
	"context"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/whence-dev/whence/chat-service/detoken"
	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
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
	Render        prompt.Renderer
}

// New returns the pipeline for m over worker.
func New(m *Model, worker TokenEngine) Engine {
	return validate(stopStrings(detoken.New(m.Tokenizer, oneByOne(render(m, tokenise(m, worker))))))
}

const (
	maxStops    = 16
	maxStopSize = 1024 // bytes
)

// validate refuses what no later stage could make sense of. The template's stage checks the conversation, the worker the
// sampling.
func validate(next Engine) Engine {
	return func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
		if len(req.GetStop()) > maxStops {
			return stream.Fail[*chatv1.GenerateResponse](streamerr.InvalidParam("stop", "stop has %d strings; at most %d are allowed", len(req.GetStop()), maxStops))
		}
		for i, s := range req.GetStop() {
			if s == "" || len(s) > maxStopSize || !utf8.ValidString(s) {
				at := fmt.Sprintf("stop[%d]", i)
				return stream.Fail[*chatv1.GenerateResponse](streamerr.InvalidParam(at, "%s must be UTF-8 of 1 to %d bytes", at, maxStopSize))
			}
		}
		return next(ctx, req)
	}
}

// A rendered request is one whose conversation has become text.
type rendered struct {
	req  *chatv1.ChatRequest
	text string
}

// render makes one text of the conversation, by the model's chat template.
func render(m *Model, next stream.Engine[rendered, *workerv1.GenerateResponse]) stream.Engine[*chatv1.ChatRequest, *workerv1.GenerateResponse] {
	return func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		text, err := m.Render(prompt.Input{Messages: req.GetMessages(), AddGenerationPrompt: true})
		if err != nil {
			return stream.Fail[*workerv1.GenerateResponse](err)
		}
		return next(ctx, rendered{req, text})
	}
}

// tokenise makes token ids of the text, and refuses what the context cannot hold.
func tokenise(m *Model, next TokenEngine) stream.Engine[rendered, *workerv1.GenerateResponse] {
	return func(ctx context.Context, r rendered) iter.Seq2[*workerv1.GenerateResponse, error] {
		// The template has written the tokens that begin a text, so the tokenizer must not add them again.
		ids := m.Tokenizer.Encode(r.text, false)
		asked := int(r.req.GetSampling().GetMaxTokens())
		switch {
		case len(ids) >= m.ContextLength:
			return stream.Fail[*workerv1.GenerateResponse](streamerr.InvalidParam("messages",
				"the messages are %d tokens long; %s has a context of %d tokens, for messages and answer together", len(ids), m.Name, m.ContextLength))
		case asked > m.ContextLength-len(ids):
			return stream.Fail[*workerv1.GenerateResponse](streamerr.InvalidParam("sampling.max_tokens",
				"the messages are %d tokens long and max_tokens is %d; %s has a context of %d tokens, for both together", len(ids), asked, m.Name, m.ContextLength))
		}
		return next(ctx, &workerv1.TokenRequest{
			StreamId: r.req.GetStreamId(), Model: m.Name, Prompt: ids, Sampling: r.req.GetSampling(), Claim: r.req.GetClaim(),
		})
	}
}
