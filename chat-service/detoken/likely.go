package detoken

import (
	"slices"
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A teller spells tokens that come with their log-probabilities, one text's.
type teller struct {
	tok     *tokenizer.Tokenizer
	special Special
	begun   bool // the text has
	told    []*chatv1.TokenLogprob
}

func (t *teller) add(tokens *workerv1.Tokens) {
	likely := tokens.GetLogprobs()
	if len(likely) == 0 || len(likely) != len(tokens.GetIds()) {
		return
	}
	each := len(tokens.GetTopIds()) / len(likely)
	for i, id := range tokens.GetIds() {
		one := t.spell(id, likely[i])
		for j := i * each; j < (i+1)*each && j < len(tokens.GetTopLogprobs()); j++ {
			one.Top = append(one.Top, t.spell(tokens.GetTopIds()[j], tokens.GetTopLogprobs()[j]))
		}
		t.told = append(t.told, one)
		t.begun = t.begun || len(one.GetBytes()) > 0
	}
}

// spell says what a token would be in the place that is next. A special one that is left out of the text has its name.
func (t *teller) spell(id uint32, likely float32) *chatv1.TokenLogprob {
	bytes := t.tok.Bytes(id, !t.begun)
	p := &chatv1.TokenLogprob{Id: id, Token: strings.ToValidUTF8(string(bytes), "\uFFFD"), Logprob: likely}
	if t.special.Keep || !t.tok.IsSpecial(id) || slices.Contains(t.special.Shown, id) {
		p.Bytes = bytes
	}
	return p
}

// take returns what was added since it was called last.
func (t *teller) take() []*chatv1.TokenLogprob {
	told := t.told
	t.told = nil
	return told
}
