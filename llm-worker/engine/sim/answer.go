package sim

import (
	"math"
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/guide"
	"github.com/whence-dev/whence/pkg/kvblock"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An answer chooses tokens. Each token depends only on the prompt, the seed and its position, so an
// answer that moves to another worker stays the same. A greedy request has no seed.
type answer struct {
	vocabulary *Vocabulary
	key        uint64
	next       uint64 // position in the whole answer
	room       uint64 // maximum tokens of the whole answer
	least      uint64 // positions before this one ignore stop conditions
	stops      []uint32
	ends       float64 // the probability that a token ends the answer; 0 if it must not end
	guide      *guide.Matcher
	mean       uint64 // average tokens of an answer
	weights    []float32
}

func newAnswer(v *Vocabulary, req *workerv1.TokenRequest, asked []uint32, room, mean int, matcher *guide.Matcher) answer {
	s := req.GetSampling()
	a := answer{
		vocabulary: v, next: uint64(req.GetGenerated()), room: uint64(room), least: uint64(s.GetMinTokens()), stops: s.GetStopTokenIds(),
		guide: matcher, mean: uint64(mean),
		key: kvblock.Next(0, asked),
	}
	if s == nil || s.Temperature == nil || *s.Temperature > 0 {
		a.key = mix(a.key + mix(s.GetSeed()+1))
	}
	if !s.GetIgnoreEos() && len(v.EOS) > 0 {
		a.ends = 1 / float64(mean)
	}
	return a
}

// choose returns the next token of the sequence id.
func (a *answer) choose(id uint64) batch.Output {
	position := a.next
	a.next++
	draw := mix(a.key + position*golden)
	if a.guide != nil {
		return a.guided(id, draw)
	}
	may := position >= a.least // stop
	if may && a.ends > 0 && fraction(mix(draw)) < a.ends {
		return batch.Output{ID: id, Token: a.vocabulary.EOS[0], Hidden: true, Finish: llmv1.Finish_FINISH_STOP}
	}
	out := batch.Output{ID: id, Token: a.vocabulary.words[draw%uint64(len(a.vocabulary.words))]}
	switch {
	case may && slices.Contains(a.stops, out.Token):
		out.Hidden, out.Finish = true, llmv1.Finish_FINISH_STOP
	case a.next >= a.room:
		out.Finish = llmv1.Finish_FINISH_LENGTH
	}
	return out
}

// guided returns the next token of an answer that follows a guide: one of the tokens that the guide
// allows, drawn by lot. After the average length, the answer ends as soon as the guide allows it.
func (a *answer) guided(id, draw uint64) batch.Output {
	if a.weights == nil {
		a.weights = make([]float32, a.vocabulary.Size)
	}
	for i := range a.weights {
		a.weights[i] = float32(fraction(mix(draw + uint64(i)*golden)))
	}
	for _, end := range a.vocabulary.EOS {
		a.weights[end] = 1 // an answer that may end ends
	}
	left := int64(a.room) - int64(a.next) + 1
	a.guide.Apply(a.weights, int(min(left, max(int64(a.mean)-int64(a.next), int64(a.guide.Need())))), a.vocabulary.EOS)
	out := batch.Output{ID: id}
	for i, weight := range a.weights {
		if weight > a.weights[out.Token] {
			out.Token = uint32(i)
		}
	}
	switch {
	case slices.Contains(a.vocabulary.EOS, out.Token):
		out.Hidden, out.Finish = true, llmv1.Finish_FINISH_STOP
	case a.guide.Advance(out.Token) != nil: // the guide allows nothing
		out.Err = streamerr.New(streamerr.EngineFailed, "the simulator found no token that the guide allows")
	case a.guide.Over():
		out.Finish = llmv1.Finish_FINISH_STOP
	case a.next >= a.room:
		out.Finish = llmv1.Finish_FINISH_LENGTH
	}
	return out
}

// golden is 2^64 divided by the golden ratio, as SplitMix64 counts.
const golden = 0x9e3779b97f4a7c15

// mix is the final step of SplitMix64: each bit of x affects each bit of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fraction maps x to a number in [0, 1).
func fraction(x uint64) float64 { return math.Ldexp(float64(x>>11), -53) }
