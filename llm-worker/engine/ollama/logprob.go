package ollama

import (
	"math"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
)

// A logprob is the log-probability of a token of the answer, and of the likeliest tokens in its place. Ollama
// has no ids of tokens.
type logprob struct {
	Text    string    `json:"token"`
	Logprob float32   `json:"logprob"`
	Top     []logprob `json:"top_logprobs"`
}

// note keeps the log-probabilities of the ids of a text. They are known only if each id spells the text of one
// token of Ollama's: the text of a character of several tokens comes as that of its last token.
func (a *answer) note(ids []uint32, logprobs []logprob) error {
	if len(ids) != len(logprobs) {
		a.likely.Unknown(ids)
		return nil
	}
	positions := make([]likely.Position, len(ids))
	for i, id := range ids {
		if text, _ := a.tokenizer.Spells(id); text != logprobs[i].Text {
			a.likely.Unknown(ids)
			return nil
		}
		positions[i] = a.position(id, logprobs[i])
	}
	if err := a.likely.Add(ids, positions); err != nil {
		return beside.Broken(err)
	}
	return nil
}

// position returns the log-probabilities at the place of id. The id of a likely token without a text of its
// own, such as a part of a character or the token that ends the answer, is not known: id fills its place, as an
// impossible token.
func (a *answer) position(id uint32, p logprob) likely.Position {
	at := likely.Position{Token: likely.Token{ID: id, Logprob: p.Logprob}}
	for _, t := range p.Top {
		one := likely.Token{ID: id, Logprob: float32(math.Inf(-1))}
		if ids := a.tokenizer.Encode(t.Text, false); len(ids) == 1 {
			if text, ok := a.tokenizer.Spells(ids[0]); ok && text == t.Text {
				one = likely.Token{ID: ids[0], Logprob: t.Logprob}
			}
		}
		at.Top = append(at.Top, one)
	}
	return at
}
