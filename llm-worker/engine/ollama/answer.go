package ollama

import (
	"encoding/json"
	"errors"
	"fmt"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/jsonscan"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// An answer is the part of the server's answer that has come, converted to tokens.
type answer struct {
	ids       beside.Answer
	tokenizer *tokenizer.Tokenizer
	speller   *tokenizer.Speller
	chars     lexicon.Characters
	likely    *likely.Queue // nil unless the request asks for log-probabilities

	promptTokens uint32 // that the server read; 0 until the server has reported it
	hasLogprobs  bool   // the server has sent log-probabilities
}

func newAnswer(m *lexicon.Model, up *beside.Upstream, req *workerv1.TokenRequest) (*answer, error) {
	speller, err := m.Tokenizer.NewSpeller()
	if err != nil {
		return nil, &streamerr.Error{Reason: streamerr.EngineFailed, Cause: err}
	}
	return &answer{
		ids: beside.NewAnswer(req, up.Vocab, up.EOS), tokenizer: m.Tokenizer, speller: speller, likely: likely.NewQueue(req.GetSampling()),
	}, nil
}

// A line is one line of the answer.
type line struct {
	Text       *lexicon.Part   `json:"response"`
	Done       bool            `json:"done"`
	DoneReason string          `json:"done_reason"`
	Prompt     uint32          `json:"prompt_eval_count"`
	Completion uint32          `json:"eval_count"`
	Logprobs   []logprob       `json:"logprobs"`
	Error      json.RawMessage `json:"error"`
}

// scan reads a line of the usual form into an empty one. What it accepts, encoding/json would read in the
// same way; what it rejects, encoding/json has to read.
func (l *line) scan(data []byte) bool {
	s := jsonscan.New(data)
	return s.Object(func(name []byte) bool {
		switch string(name) {
		case "response":
			return jsonscan.Pointer(&s, &l.Text, func(p *lexicon.Part) bool {
				text, ok := s.Raw()
				return ok && p.UnmarshalJSON(text) == nil
			})
		case "done":
			return s.Bool(&l.Done)
		case "done_reason":
			return s.String(&l.DoneReason)
		case "prompt_eval_count":
			return s.Uint32(&l.Prompt)
		case "eval_count":
			return s.Uint32(&l.Completion)
		case "logprobs": // of few requests
			return s.Value(&l.Logprobs)
		case "error":
			return s.Value(&l.Error)
		default:
			return s.Other(name)
		}
	}) && s.End()
}

// next returns the tokens and the ending of one line.
func (a *answer) next(data []byte) ([]uint32, *llmv1.End, error) {
	var l line
	if !l.scan(data) {
		l = line{}
		if err := json.Unmarshal(data, &l); err != nil {
			return nil, nil, beside.Broken(fmt.Errorf("a line is not an answer: %w", err))
		}
	}
	switch {
	case len(l.Error) > 0 && string(l.Error) != "null":
		return nil, nil, beside.Dialect(beside.Ollama).Complete(overhttp.ReadComplaint(data), true).Ending(beside.InAnswer)
	case l.Text == nil:
		return nil, nil, beside.Broken(errors.New("a line has no response"))
	}
	ids, err := a.spell(a.chars.Next(*l.Text), l.Logprobs)
	if err != nil || !l.Done {
		return ids, nil, err
	}
	finish, err := beside.Finish(l.DoneReason)
	if err != nil {
		return nil, nil, err
	}
	rest, err := a.spell(a.chars.Flush(), nil)
	if err != nil {
		return nil, nil, err
	}
	if err := a.speller.Flush(); err != nil {
		return nil, nil, beside.Broken(err)
	}
	a.promptTokens = l.Prompt
	held, end := a.ids.End(finish, beside.Usage{Prompt: l.Prompt, Completion: l.Completion})
	return append(append(ids, rest...), held...), end, nil
}

// spell returns ids for the next text, whose tokens have these log-probabilities.
func (a *answer) spell(text string, logprobs []logprob) ([]uint32, error) {
	ids, err := a.speller.Next(text)
	if err != nil {
		return nil, beside.Fail(streamerr.EngineFailed, err, "a part of the answer is not text of the model's tokenizer: does the server run this model?")
	}
	a.ids.Made(len(ids))
	a.hasLogprobs = a.hasLogprobs || len(logprobs) > 0
	if a.likely != nil {
		return ids, a.note(ids, logprobs)
	}
	return ids, nil
}
