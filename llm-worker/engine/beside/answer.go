package beside

import (
	"fmt"
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Answer is what has come of one, as the server's token ids. The token that ends it is not part of it, and which one that
// is shows only when the server says how the answer has ended.
type Answer struct {
	prompt int // tokens, without those that are the answer so far
	begun  int // tokens of the answer that were generated elsewhere
	vocab  int
	limit  int      // tokens that were asked for; 0 if nobody said
	ends   []uint32 // tokens that may end it

	held  []uint32 // a token of ends that came last, and is part of the answer if others follow
	given int      // tokens that were handed out

	told   bool    // what the server found in its cache
	cached *uint32 // that, until it was told
}

// A Usage is what the server counts, 0 where it does not.
type Usage struct{ Prompt, Completion, Cached uint32 }

// NewAnswer returns an empty answer to req, of a model with vocab tokens and these that end a sequence.
func NewAnswer(req *workerv1.TokenRequest, vocab int, eos []uint32) Answer {
	begun := int(req.GetGenerated())
	a := Answer{prompt: len(req.GetPrompt()) - begun, begun: begun, vocab: vocab, ends: req.GetSampling().GetStopTokenIds()}
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		a.limit = int(*s.MaxTokens) - begun
	}
	if !req.GetSampling().GetIgnoreEos() {
		a.ends = slices.Concat(a.ends, eos)
	}
	return a
}

// Take returns those of the ids that came, and before, that are part of the answer for certain.
func (a *Answer) Take(ids []uint32) ([]uint32, error) {
	for _, id := range ids {
		if int64(id) >= int64(a.vocab) {
			return nil, Broken(fmt.Errorf("token id %d is not below %d, the size of the vocabulary", id, a.vocab))
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	if a.limit > 0 && a.given+len(a.held)+len(ids) > a.limit {
		return nil, Broken(fmt.Errorf("more tokens than the %d that were asked for", a.limit))
	}
	if len(a.held) > 0 {
		ids, a.held = slices.Concat(a.held, ids), nil
	}
	if last := len(ids) - 1; slices.Contains(a.ends, ids[last]) {
		ids, a.held = ids[:last:last], ids[last:]
	}
	a.given += len(ids)
	return ids, nil
}

// Made notes n tokens of the answer that were made of something else than the server's ids.
func (a *Answer) Made(n int) { a.given += n }

// Found notes how many tokens of the prompt the server says it had in its cache. The first time counts.
func (a *Answer) Found(cached uint32) {
	if !a.told {
		a.told, a.cached = true, new(min(cached, uint32(a.prompt)))
	}
}

// Tell completes the first tokens with what was found.
func (a *Answer) Tell(tokens *workerv1.Tokens) { tokens.CachedTokens, a.cached = a.cached, nil }

// Count returns how many tokens were handed out.
func (a *Answer) Count() int { return a.given }

// Came returns the number of tokens that came, including held back tokens.
func (a *Answer) Came() int { return a.given + len(a.held) }

// FinishAt returns the finish reason of an answer of count tokens whose server gave none, for a request of at most
// limit tokens: LENGTH if it has all limit tokens, STOP if its last token may end the answer, and otherwise
// FINISH_UNSPECIFIED, because a part may be missing.
func (a *Answer) FinishAt(limit, count int) llmv1.Finish {
	switch {
	case limit <= 0 || count != limit:
		return llmv1.Finish_FINISH_UNSPECIFIED
	case len(a.held) > 0:
		return llmv1.Finish_FINISH_STOP
	default:
		return llmv1.Finish_FINISH_LENGTH
	}
}

// End returns the last tokens, and the ending. The server's usage counts; where it has not said any, the token that ends an
// answer is counted, as its own would be.
func (a *Answer) End(finish llmv1.Finish, said Usage) ([]uint32, *llmv1.End) {
	var last []uint32
	if finish != llmv1.Finish_FINISH_STOP { // what is held did not end it
		last, a.held = a.held, nil
		a.given += len(last)
	}
	u := &llmv1.Usage{PromptTokens: uint32(a.prompt), CompletionTokens: uint32(a.begun + a.given), CachedTokens: said.Cached}
	if finish == llmv1.Finish_FINISH_STOP {
		u.CompletionTokens++
	}
	if said.Completion > 0 {
		u.CompletionTokens = uint32(a.begun) + said.Completion
	}
	if begun := uint32(a.begun); said.Prompt > begun {
		u.PromptTokens = said.Prompt - begun
	}
	return last, &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{Hop}, Finish: finish, Usage: u}
}

// finishes maps the finish reasons of complete answers, as all servers spell them. An aborted answer is not complete.
// A filtered answer is, because another server would have to break the same rule.
var finishes = map[string]llmv1.Finish{
	"stop":           llmv1.Finish_FINISH_STOP,
	"length":         llmv1.Finish_FINISH_LENGTH,
	"content_filter": llmv1.Finish_FINISH_CONTENT_FILTER,
}

// Finish reads the server's word for how an answer has ended. Every other word is a failure.
func Finish(said string) (llmv1.Finish, error) {
	finish := finishes[said]
	if finish == llmv1.Finish_FINISH_UNSPECIFIED {
		return finish, Fail(streamerr.EngineFailed, nil, "the server that generates ended the answer with finish reason %q", Clip(said, 64))
	}
	return finish, nil
}
