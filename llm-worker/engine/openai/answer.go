package openai

import (
	"errors"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// An answer is the part of the server's answer that has come, converted to tokens.
type answer struct {
	limit   int // requested tokens
	ids     beside.Answer
	dialect beside.Dialect

	form    llmv1.Form         // form of the answer; FORM_UNSPECIFIED until the first piece
	speller *tokenizer.Speller // of text
	chars   lexicon.Characters // of text
	likely  *likely.Queue      // nil unless the request asks for log-probabilities
	scored  *likely.Prompt     // nil unless it asks for those of the prompt

	chunk  chunk // of the current event
	finish llmv1.Finish
	usage  *usage // nil until the server has reported it
}

// newAnswer returns an empty answer to req, for which the server is asked for at most limit tokens.
func newAnswer(m *lexicon.Model, req *workerv1.TokenRequest, limit int, dialect beside.Dialect) (*answer, error) {
	speller, err := m.Tokenizer.NewSpeller()
	if err != nil {
		return nil, &streamerr.Error{Reason: streamerr.EngineFailed, Cause: err}
	}
	return &answer{
		limit: limit, dialect: dialect, ids: beside.NewAnswer(req, m.VocabSize, m.EOS), speller: speller,
		likely: likely.NewQueue(req.GetSampling()), scored: likely.NewPrompt(req),
	}, nil
}

// next returns the tokens and the ending of one event; [DONE] carries the ending.
func (a *answer) next(data []byte) ([]uint32, *llmv1.End, error) {
	if string(data) == overhttp.Done {
		if a.finish == llmv1.Finish_FINISH_UNSPECIFIED {
			a.finish = a.ids.FinishAt(a.limit, a.count())
		}
		if a.finish == llmv1.Finish_FINISH_UNSPECIFIED {
			return nil, nil, beside.Lost(nil, "ended the stream without a finish_reason")
		}
		return a.end()
	}
	ids, err := a.take(data)
	return ids, nil, err
}

// count returns the number of tokens of the answer, as far as it is known: ids for a text are the
// worker's own spelling, so only the server can count the tokens of a text.
func (a *answer) count() int {
	switch {
	case a.usage != nil && a.usage.Completion > 0:
		return int(a.usage.Completion)
	case a.form == llmv1.Form_FORM_TEXT:
		return 0
	default:
		return a.ids.Came()
	}
}

// closed returns the ending of an answer after its events could not be read further because of err.
// An answer with a finish_reason is complete, with or without [DONE].
func (a *answer) closed(err error) ([]uint32, *llmv1.End, error) {
	if a.finish == llmv1.Finish_FINISH_UNSPECIFIED || !errors.Is(err, streamerr.PeerLost) {
		return nil, nil, err
	}
	return a.end()
}

// take returns the tokens of one event.
func (a *answer) take(data []byte) ([]uint32, error) {
	c := &a.chunk
	err := c.read(data, a.dialect)
	if err != nil {
		return nil, err
	}
	if c.Usage != nil {
		a.usage = c.Usage
	}
	if len(c.Choices) == 0 {
		return nil, nil
	}
	choice := &c.Choices[0]
	if a.finish != llmv1.Finish_FINISH_UNSPECIFIED && (len(choice.Text) > 0 || len(choice.TokenIDs) > 0) {
		return nil, beside.Broken(errors.New("the answer continues after its finish_reason"))
	}
	positions, echo, err := a.score(choice)
	switch { // the first piece decides the form: text beside ids repeats the ids
	case err != nil:
		return nil, beside.Fail(streamerr.EngineFailed, err, "the server that generates does not say how likely the prompt's tokens were")
	case echo:
		return nil, nil
	case a.form != llmv1.Form_FORM_UNSPECIFIED:
	case len(choice.TokenIDs) > 0:
		a.form = llmv1.Form_FORM_TOKEN_IDS
	case len(choice.Text) > 0:
		a.form = llmv1.Form_FORM_TEXT
	}
	if a.form == llmv1.Form_FORM_UNSPECIFIED && choice.Delta.Content != "" {
		return nil, beside.Fail(streamerr.EngineFailed, nil, "the server does not return the token ids of its chats")
	}
	if choice.Finish != nil {
		if a.finish, err = beside.Finish(*choice.Finish); err != nil {
			return nil, err
		}
	}
	switch {
	case a.likely != nil && (a.form == llmv1.Form_FORM_TEXT || len(choice.TokenIDs) > 0):
		err := a.likely.Add(choice.TokenIDs, positions)
		if err != nil || a.form == llmv1.Form_FORM_TEXT {
			return nil, beside.Fail(streamerr.EngineFailed, err, "the server that generates does not say how likely its tokens were")
		}
	case a.form == llmv1.Form_FORM_TEXT:
		return a.spell(a.chars.Next(choice.Text))
	}
	return a.ids.Take(choice.TokenIDs)
}

// score returns the log-probabilities of the answer's tokens in a choice, after it has kept those of the
// prompt, which come first. echo reports that the choice has nothing but a part of the prompt.
func (a *answer) score(choice *choice) (positions []likely.Position, echo bool, err error) {
	if a.likely == nil {
		return nil, false, nil
	}
	if positions, err = choice.Logprobs.positions(); err != nil {
		return nil, false, err
	}
	all := len(positions)
	if positions, err = a.scored.Add(positions); err != nil {
		return nil, false, err
	}
	if echo = len(positions) < all && len(choice.TokenIDs) == 0; !echo && (len(choice.TokenIDs) > 0 || choice.Finish != nil) {
		err = a.scored.Check()
	}
	return positions, echo, err
}

func (a *answer) spell(text string) ([]uint32, error) {
	ids, err := a.speller.Next(text)
	if err != nil {
		return nil, beside.Fail(streamerr.EngineFailed, err, "a part of the answer is not text of the model's tokenizer: does the server run this model?")
	}
	a.ids.Made(len(ids))
	return ids, nil
}

// end returns the tokens that were held back and the ending of a whole answer.
func (a *answer) end() ([]uint32, *llmv1.End, error) {
	var rest []uint32
	if a.form == llmv1.Form_FORM_TEXT {
		var err error
		if rest, err = a.spell(a.chars.Flush()); err != nil {
			return nil, nil, err
		}
		if err = a.speller.Flush(); err != nil {
			return nil, nil, beside.Broken(err)
		}
	}
	var said beside.Usage
	if a.usage != nil && a.usage.Completion > 0 {
		said = beside.Usage{Prompt: a.usage.Prompt, Completion: a.usage.Completion, Cached: a.usage.Details.Cached}
	}
	held, end := a.ids.End(a.finish, said)
	return append(rest, held...), end, nil
}
