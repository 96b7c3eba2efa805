package postprocess

import (
	"iter"
	"math"
	"slices"
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A speller adds the text of tokens to their log-probabilities.
type speller struct {
	tokenizer *tokenizer.Tokenizer
	keep      bool     // special tokens are in the text
	shown     []uint32 // special tokens that are in the text even without keep
	begun     bool     // the text has begun
}

// spell returns one entry for each token of t, or nil if t has no log-probabilities. An engine that does not
// know all of the likeliest tokens fills their places with an impossible token, which appears once at most.
func (s *speller) spell(t *workerv1.Tokens) []*chatv1.TokenLogprob {
	logprobs := t.GetLogprobs()
	if len(logprobs) == 0 || len(logprobs) != len(t.GetIds()) {
		return nil
	}
	spelled := make([]*chatv1.TokenLogprob, len(logprobs))
	each := len(t.GetTopIds()) / len(logprobs)
	for i, id := range t.GetIds() {
		one := s.token(id, logprobs[i])
		for j := i * each; j < (i+1)*each && j < len(t.GetTopLogprobs()); j++ {
			likely := s.token(t.GetTopIds()[j], t.GetTopLogprobs()[j])
			if likely.GetLogprob() > impossible || !slices.ContainsFunc(one.GetTop(), func(p *chatv1.TokenLogprob) bool { return p.GetId() == likely.GetId() }) {
				one.Top = append(one.Top, likely)
			}
		}
		spelled[i] = one
		s.begun = s.begun || len(one.GetBytes()) > 0
	}
	return spelled
}

// echoStep is the number of a prompt's tokens in one delta.
const echoStep = 256

// Echo yields the text of a prompt with the log-probabilities of its tokens, which known has from the
// second one on. The deltas count no tokens.
func (p *Processor) Echo(ids []uint32, known *workerv1.PromptLogprobs) iter.Seq[*chatv1.GenerateResponse] {
	return func(yield func(*chatv1.GenerateResponse) bool) {
		s, decoder := p.speller, p.opts.Tokenizer.NewDecoder(!p.opts.KeepSpecial, p.opts.Shown...)
		first := s.token(ids[0], 0)
		first.Unscored = true
		s.begun = len(first.GetBytes()) > 0
		all := append([]*chatv1.TokenLogprob{first}, s.spell(&workerv1.Tokens{
			Ids: ids[1:], Logprobs: known.GetLogprobs(), TopIds: known.GetTopIds(), TopLogprobs: known.GetTopLogprobs(),
		})...)
		for len(ids) > 0 {
			n := min(len(ids), echoStep)
			p.delta.text = decoder.Next(ids[:n]...)
			if p.delta.logprobs, all, ids = all[:n:n], all[n:], ids[n:]; len(ids) == 0 {
				p.delta.text += decoder.Flush()
			}
			if !yield(p.delta.message()) {
				return
			}
		}
	}
}

// skip skips tokens of the text without log-probabilities.
func (s *speller) skip(ids []uint32) {
	for _, id := range ids {
		s.begun = s.begun || s.inText(id) && len(s.tokenizer.Bytes(id, true)) > 0
	}
}

// inText reports whether a token is in the text.
func (s *speller) inText(id uint32) bool {
	return s.keep || !s.tokenizer.IsSpecial(id) || slices.Contains(s.shown, id)
}

// token returns the entry of id as the next token of the text. A special token that is not in the
// text has only a name.
func (s *speller) token(id uint32, logprob float32) *chatv1.TokenLogprob {
	bytes := s.tokenizer.Bytes(id, !s.begun)
	p := &chatv1.TokenLogprob{Id: id, Token: strings.ToValidUTF8(string(bytes), "\uFFFD"), Logprob: number(logprob)}
	if s.inText(id) {
		p.Bytes = bytes
	}
	return p
}

// impossible stands for a log-probability of -Inf, as in whence.worker.v1.Tokens.
const impossible = -9999

// number makes a worker's log-probability a number that JSON has: a worker may send -Inf or NaN
// despite its contract.
func number(logprob float32) float32 {
	switch {
	case math.IsInf(float64(logprob), 1):
		return 0
	case logprob >= impossible:
		return logprob
	default: // also NaN
		return impossible
	}
}

// An aligner holds back log-probabilities until the text of their tokens is delivered. A token
// belongs to the delta in which its text begins; a token without text belongs to the text that
// follows. The aligner holds at most the tokens that the stages hold back.
type aligner struct {
	spelled []*chatv1.TokenLogprob // tokens whose text the decoder holds back

	// Used only with stop strings.
	decoded, released int // bytes of text
	waiting           []placedToken
}

// A placedToken is a token and the offset of its text in bytes.
type placedToken struct {
	at    int
	token *chatv1.TokenLogprob
}

func (a *aligner) add(spelled []*chatv1.TokenLogprob) { a.spelled = append(a.spelled, spelled...) }

// take appends the tokens whose text the decoder has released.
func (a *aligner) take(to []*chatv1.TokenLogprob) []*chatv1.TokenLogprob {
	to = append(to, a.spelled...)
	a.spelled = nil
	return to
}

// place records the offsets of the tokens whose text the decoder has released.
func (a *aligner) place(text string) {
	at := a.decoded
	a.decoded += len(text)
	for _, token := range a.spelled {
		// Invalid bytes are longer as text, so a token may seem to begin after the text.
		a.waiting = append(a.waiting, placedToken{min(at, max(a.decoded-1, 0)), token})
		at += len(token.GetBytes())
	}
	a.spelled = nil
}

// shown appends the tokens that begin in text, the next text to be delivered.
func (a *aligner) shown(to []*chatv1.TokenLogprob, text string) []*chatv1.TokenLogprob {
	a.released += len(text)
	n := 0
	for n < len(a.waiting) && a.waiting[n].at < a.released {
		to = append(to, a.waiting[n].token)
		n++
	}
	a.waiting = a.waiting[n:]
	return to
}

// rest appends all waiting tokens.
func (a *aligner) rest(to []*chatv1.TokenLogprob) []*chatv1.TokenLogprob {
	for _, p := range a.waiting {
		to = append(to, p.token)
	}
	a.waiting = nil
	return to
}

// held returns the number of tokens held back.
func (a *aligner) held() uint32 { return uint32(len(a.spelled) + len(a.waiting)) }
