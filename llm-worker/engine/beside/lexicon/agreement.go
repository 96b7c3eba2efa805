package lexicon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// probes are texts that the tokenizers of different models split differently: words and digits, code with
// white space, and several scripts with an emoji.
var probes = [...]string{
	"The 3 foxes don't pay 1,234,567.89 dollars in 2024! Günther's naïve café asks for €12.",
	"def f(x):\n\treturn x[1:-1] == 0x7F  # not yet\n\n\n        while (i++ < n) { y ||= \"z\"; }",
	"Привет, мир! 你好,世界。こんにちは 안녕하세요 مرحبا नमस्ते 🙂",
}

// A Spelling is what a server tells about the tokens of a text: their ids, or only their number.
type Spelling struct {
	IDs   []uint32 // nil if the server tells only the number
	Count int      // 0 if the server does not tell it
}

// A TokenSource asks the server for the tokens of a text. special reports that the server adds the tokens
// that begin and end every text.
type TokenSource func(ctx context.Context, text string, special bool) (Spelling, error)

// An Agreement compares the model files of the worker with the model that its server runs, by the tokens
// that both make of a few texts. Both sides exchange token ids, so that an answer of another vocabulary
// would be nonsense without an error.
type Agreement struct {
	Model  *Model
	Server string // the server's name of its model
	// Loose reports that the worker sends and gets text: another count of tokens is then told, and refused
	// only if it is far off.
	Loose bool
}

// ErrUntold is the error of Prove if the server does not tell the tokens of texts.
var ErrUntold = errors.New("the server does not tell the tokens of texts")

// Prove asks for the ids of the probing texts. It returns the ending that refuses the server if these ids
// are other texts in the worker's files, and a note for the operator about a smaller difference. The error
// wraps ErrUntold if the server has no ids to tell.
func (a *Agreement) Prove(ctx context.Context, ask TokenSource) (note string, err error) {
	for _, text := range probes {
		found, err := a.compare(ctx, ask, text, false)
		if err != nil {
			return "", err
		}
		note = cmp.Or(note, found)
	}
	found, err := a.compare(ctx, ask, beside.TrialPrompt, true)
	return cmp.Or(note, found), err
}

// Count is Prove for a server that tells the tokens of a text only as it generates: their ids perhaps, or
// their number. A number in front of each text keeps it out of the server's cache, whose tokens some servers
// do not count. A server that tells nothing is not refused.
func (a *Agreement) Count(ctx context.Context, ask TokenSource) (note string, err error) {
	for _, text := range probes {
		found, err := a.compare(ctx, ask, fmt.Sprintf("%d. %s", 1000+rand.IntN(9000), text), true)
		if errors.Is(err, ErrUntold) {
			return "whether the server runs the model of the worker's files could not be proved: " + err.Error(), nil
		}
		if err != nil {
			return "", err
		}
		note = cmp.Or(note, found)
	}
	return note, nil
}

// compare compares the tokens of one text.
func (a *Agreement) compare(ctx context.Context, ask TokenSource, text string, special bool) (note string, err error) {
	ours, err := a.Model.Tokenizer.EncodeText(text, special)
	if err != nil {
		return "", nil //nolint:nilerr // a text that the worker's tokenizer does not take proves nothing
	}
	theirs, err := ask(ctx, text, special)
	switch {
	case err != nil && isLost(err):
		return "", err
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrUntold, err)
	case theirs.IDs != nil:
		return a.compareIDs(text, ours, theirs.IDs)
	case theirs.Count == 0:
		return "", ErrUntold
	}
	return a.compareCounts(text, len(ours), theirs.Count)
}

// isLost reports that an error is about the server, and not about its endpoint for tokens: the next trial
// asks again.
func isLost(err error) bool {
	return !beside.Late(err) && (errors.Is(err, streamerr.Unavailable) || errors.Is(err, streamerr.PeerLost))
}

// compareIDs compares the ids of a text. Ids that are the same text in the worker's files are the same
// vocabulary, split otherwise: servers with tokenizers of their own, such as llama.cpp, differ in rare texts.
func (a *Agreement) compareIDs(text string, ours, theirs []uint32) (note string, err error) {
	if slices.Equal(ours, theirs) {
		return "", nil
	}
	at := 0
	for at < len(ours) && at < len(theirs) && ours[at] == theirs[at] {
		at++
	}
	how := fmt.Sprintf("%q is %s in the files, and %s at the server, from token %d on", beside.Clip(text, 48), first(ours[at:]), first(theirs[at:]), at)
	if a.plain(ours) == a.plain(theirs) {
		return "the server splits texts otherwise than the model files of the worker, into the same vocabulary: " + how, nil
	}
	return "", a.refuse(how)
}

// plain returns the text of ids without what frames every text.
func (a *Agreement) plain(ids []uint32) string {
	return strings.TrimLeft(a.Model.Tokenizer.Decode(ids, true), " ")
}

// compareCounts compares the numbers of tokens of a text.
func (a *Agreement) compareCounts(text string, ours, theirs int) (note string, err error) {
	if ours == theirs {
		return "", nil
	}
	how := fmt.Sprintf("%q has %d tokens in the files, and the server counts %d", beside.Clip(text, 48), ours, theirs)
	if a.Loose && max(ours, theirs)-min(ours, theirs) <= ours/4 {
		return "the server counts tokens otherwise than the model files of the worker: " + how, nil
	}
	return "", a.refuse(how)
}

func (a *Agreement) refuse(how string) error {
	return beside.Fail(streamerr.EngineFailed, nil, "the server that generates runs %q, and the model files of the worker (--model %s) have other tokens: %s",
		beside.Clip(a.Server, 96), beside.Clip(a.Model.Name, 96), how)
}

// first returns the first of some ids, as text.
func first(ids []uint32) string {
	const most = 4
	switch {
	case len(ids) == 0:
		return "at its end"
	case len(ids) > most:
		return strings.Trim(fmt.Sprint(ids[:most]), "[]") + " …"
	default:
		return strings.Trim(fmt.Sprint(ids), "[]")
	}
}

// FitsInto returns the ending that refuses a server whose vocabulary, of n tokens, is too small for the
// worker's files. A larger one is padded, as GPUs like it; 0 means that the server does not tell.
func (a *Agreement) FitsInto(n int) error {
	if n <= 0 || n >= a.Model.least {
		return nil
	}
	return a.refuse(fmt.Sprintf("the files have %d, and the server's vocabulary %d", a.Model.least, n))
}
