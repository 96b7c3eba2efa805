package openai

import (
	"context"
	"errors"
	"fmt"
	"slices"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// An answer is what has come of one, made into tokens.
type answer struct {
	prompt int // tokens
	vocab  int
	ends   []uint32 // tokens that end an answer, and are not part of it

	form    workerv1.Form      // of what comes; FORM_UNSPECIFIED until something has
	held    []uint32           // a token of ends that came last, and is part of the answer if others follow
	speller *tokenizer.Speller // of text
	chars   characters         // of text

	given  int // tokens that were yielded
	finish streamv1.Finish
	usage  *usage // nil until the server has said it
}

func newAnswer(m *Model, req *workerv1.TokenRequest) (*answer, error) {
	speller, err := m.Tokenizer.NewSpeller()
	if err != nil {
		return nil, &streamerr.Error{Reason: streamerr.EngineFailed, Cause: err}
	}
	a := &answer{prompt: len(req.GetPrompt()), vocab: m.VocabSize, speller: speller, ends: req.GetSampling().GetStopTokenIds()}
	if !req.GetSampling().GetIgnoreEos() {
		a.ends = slices.Concat(a.ends, m.EOS)
	}
	return a, nil
}

// pass yields the tokens of all events, until [DONE] has come to a finished answer.
func (a *answer) pass(ctx context.Context, events *events, yield func(*workerv1.GenerateResponse) bool) (left bool, err error) {
	record := ledger.Of(ctx)
	for {
		data, err := events.next()
		if cause := stream.Cause(ctx); cause != nil {
			return false, cause // even if the server has sent more already
		}
		if err != nil {
			return false, readFailed(err)
		}
		last := string(data) == done
		var ids []uint32
		if last {
			ids, err = a.flush()
		} else {
			ids, err = a.take(data)
		}
		if err != nil {
			return false, err
		}
		if len(ids) > 0 {
			a.given += len(ids)
			record.In(len(ids))
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: ids}}}) {
				return true, nil
			}
		}
		if last {
			return false, nil
		}
	}
}

// take returns the tokens of one event.
func (a *answer) take(data []byte) ([]uint32, error) {
	c, err := readChunk(data)
	if said, ok := errors.AsType[complaint](err); ok {
		return nil, fail(streamerr.EngineFailed, nil, "the server that generates failed: %s", string(said))
	}
	if err != nil {
		return nil, broken(err)
	}
	if c.Usage != nil {
		a.usage = c.Usage
	}
	if len(c.Choices) == 0 {
		return nil, nil
	}
	choice := &c.Choices[0]
	if a.finish != streamv1.Finish_FINISH_UNSPECIFIED && (len(choice.Text) > 0 || len(choice.TokenIDs) > 0) {
		return nil, broken(errors.New("the answer goes on behind its finish_reason"))
	}
	switch { // what comes first decides: text beside ids says the same again
	case a.form != workerv1.Form_FORM_UNSPECIFIED:
	case len(choice.TokenIDs) > 0:
		a.form = workerv1.Form_FORM_TOKEN_IDS
	case len(choice.Text) > 0:
		a.form = workerv1.Form_FORM_TEXT
	}
	if choice.Finish != nil {
		if a.finish = finishes[*choice.Finish]; a.finish == streamv1.Finish_FINISH_UNSPECIFIED {
			return nil, fail(streamerr.EngineFailed, nil, "the server that generates ended the answer with finish_reason %q", clip(*choice.Finish, 64))
		}
	}
	if a.form == workerv1.Form_FORM_TEXT {
		return a.spell(a.chars.next(choice.Text))
	}
	return a.known(choice.TokenIDs)
}

// known returns those of the ids that are part of the answer for certain.
func (a *answer) known(ids []uint32) ([]uint32, error) {
	for _, id := range ids {
		if int64(id) >= int64(a.vocab) {
			return nil, broken(fmt.Errorf("token id %d is not below %d, the size of the vocabulary", id, a.vocab))
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	if len(a.held) > 0 {
		ids, a.held = slices.Concat(a.held, ids), nil
	}
	if last := len(ids) - 1; slices.Contains(a.ends, ids[last]) {
		ids, a.held = ids[:last:last], ids[last:]
	}
	return ids, nil
}

func (a *answer) spell(text string) ([]uint32, error) {
	ids, err := a.speller.Next(text)
	if err != nil {
		return nil, fail(streamerr.EngineFailed, err, "a part of the answer is no text that the model's tokenizer knows: is it this model that the server runs?")
	}
	return ids, nil
}

// flush returns what was held back, when the server says that the answer is whole.
func (a *answer) flush() ([]uint32, error) {
	if a.finish == streamv1.Finish_FINISH_UNSPECIFIED {
		return nil, lost(nil, "ended the stream without a finish_reason")
	}
	if a.form == workerv1.Form_FORM_TEXT {
		ids, err := a.spell(a.chars.flush())
		if err == nil {
			if err = a.speller.Flush(); err != nil {
				err = broken(err)
			}
		}
		return ids, err
	}
	if a.finish == streamv1.Finish_FINISH_STOP {
		return nil, nil // what is held ended the answer
	}
	held := a.held
	a.held = nil
	return held, nil
}

// end makes the last message. The server's usage counts; where it has not said any, the token that ends an answer is
// counted, as its own would be.
func (a *answer) end() *streamv1.End {
	u := &streamv1.Usage{PromptTokens: uint32(a.prompt), CompletionTokens: uint32(a.given)}
	if a.finish == streamv1.Finish_FINISH_STOP {
		u.CompletionTokens++
	}
	if a.usage != nil && a.usage.Completion > 0 {
		u.CompletionTokens, u.CachedTokens = a.usage.Completion, a.usage.Details.Cached
		if a.usage.Prompt > 0 {
			u.PromptTokens = a.usage.Prompt
		}
	}
	return &streamv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{engineHop}, Finish: a.finish, Usage: u}
}

// unseen returns how many tokens were generated that no item held.
func (a *answer) unseen(end *streamv1.End) int {
	return max(0, int(end.GetUsage().GetCompletionTokens())-a.given)
}
