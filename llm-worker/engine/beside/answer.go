package beside

import (
	"fmt"
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Answer collects the token ids of the server's answer. The token that ends the answer is not
// part of it; whether a token ended the answer is known only when the server reports the finish.
type Answer struct {
	prompt int // of the prompt, without the part of the answer that it contains
	begun  int // tokens of the answer that another worker generated
	vocab  int
	limit  int      // requested tokens; 0 if the request sets no limit
	ends   []uint32 // tokens that may end the answer

	held  []uint32 // the last token if it is one of ends; part of the answer if others follow
	given int      // tokens handed out

	found  bool    // the server has reported its cached prompt tokens
	cached *uint32 // that number, until an item has carried it
}

// A Usage holds the server's token counts; 0, or nil, if the server did not report one.
type Usage struct {
	Prompt, Completion uint32
	Cached             *uint32
}

// NewAnswer returns an empty answer to req, of a model with vocab tokens and the end-of-sequence
// tokens eos.
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

// Take adds ids and returns the tokens that are certainly part of the answer, from ids and from
// earlier calls.
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

// Made records n tokens of the answer that were not made from the server's ids.
func (a *Answer) Made(n int) { a.given += n }

// Found records the number of prompt tokens that the server found in its cache, if it says so. Only the first
// number counts.
func (a *Answer) Found(cached *uint32) {
	if !a.found && cached != nil {
		a.found, a.cached = true, new(min(*cached, uint32(a.prompt)))
	}
}

// Tell sets CachedTokens of the first item of tokens.
func (a *Answer) Tell(tokens *workerv1.Tokens) { tokens.CachedTokens, a.cached = a.cached, nil }

// Count returns the number of tokens handed out.
func (a *Answer) Count() int { return a.given }

// Came returns the number of tokens received, including held-back tokens.
func (a *Answer) Came() int { return a.given + len(a.held) }

// FinishAt returns the finish reason of an answer of count tokens if the server gave none, for a
// request of at most limit tokens: LENGTH if the answer has limit tokens, STOP if its last token
// may end it, otherwise FINISH_UNSPECIFIED, because a part may be missing.
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

// End returns the last tokens and the ending. The server's usage counts if there is one that is
// possible. Otherwise the token that ended the answer is counted, as the embedded engine does.
func (a *Answer) End(finish llmv1.Finish, said Usage) ([]uint32, *llmv1.End) {
	var last []uint32
	if finish != llmv1.Finish_FINISH_STOP { // the held token did not end the answer
		last, a.held = a.held, nil
		a.given += len(last)
	}
	u := &llmv1.Usage{PromptTokens: uint32(a.prompt), CompletionTokens: uint32(a.begun + a.given)}
	if finish == llmv1.Finish_FINISH_STOP {
		u.CompletionTokens++
	}
	if said.Completion > 0 && int64(said.Completion) <= a.mostTokens() {
		u.CompletionTokens = uint32(a.begun) + said.Completion
	}
	if begun := uint32(a.begun); said.Prompt > begun && said.Prompt <= MaxCounted {
		u.PromptTokens = said.Prompt - begun
	}
	if said.Cached != nil { // the server counts the part of the answer that it was given as prompt, too
		u.CachedTokens = new(min(*said.Cached, u.PromptTokens))
	}
	end := &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{Hop}, Finish: finish, Usage: u}
	if len(a.held) > 0 {
		end.MatchedToken = &a.held[0]
	}
	return last, end
}

// MaxCounted is the largest number of tokens that a server is believed to have counted. It is far above
// any context. Tenants are charged for what is counted.
const MaxCounted = 1 << 24

// mostTokens returns the largest number of tokens that the server can have made of this answer: a
// server may count the token that ended the answer beyond the limit.
func (a *Answer) mostTokens() int64 {
	if a.limit > 0 {
		return int64(a.limit) + 1
	}
	return MaxCounted
}

// finishes maps the finish reasons of complete answers, in every server's spelling. A filtered answer
// is complete, because another server would have to apply the same rule.
var finishes = map[string]llmv1.Finish{
	"stop":           llmv1.Finish_FINISH_STOP,
	"length":         llmv1.Finish_FINISH_LENGTH,
	"content_filter": llmv1.Finish_FINISH_CONTENT_FILTER,
}

// aborted is the finish reason of an answer that the server has aborted. We read no answer after we have
// aborted it ourselves. So the server shuts down (vLLM ends its answers like this on SIGTERM), or its operator
// has aborted the request: another server can go on.
const aborted = "abort"

// Finish converts the server's finish reason. An unknown finish reason is a failure.
func Finish(said string) (llmv1.Finish, error) {
	if said == aborted {
		return llmv1.Finish_FINISH_UNSPECIFIED, Lost(nil, `ended the answer with finish reason "abort": it shuts down, or others have aborted the request`)
	}
	finish := finishes[said]
	if finish == llmv1.Finish_FINISH_UNSPECIFIED {
		return finish, Fail(streamerr.EngineFailed, nil, "the server that generates ended the answer with finish reason %q", Clip(said, 64))
	}
	return finish, nil
}
