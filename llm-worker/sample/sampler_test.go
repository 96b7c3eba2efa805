package sample_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/sample"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

func greedy() *llmv1.Sampling { return &llmv1.Sampling{Temperature: new(float32(0))} }

// next gives s a copy of logits, and fails the test on an error.
func next(t *testing.T, s *sample.Sampler, logits ...float32) sample.Choice {
	t.Helper()
	c, err := s.Next(slices.Clone(logits))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGreedyTakesTheLowestOfEqualTokens(t *testing.T) {
	s := sample.New(greedy(), sample.Sequence{Vocab: 4, Room: 10})
	if c := next(t, s, 1, 3, 3, -inf); c.Token != 1 {
		t.Errorf("token %d, want 1", c.Token)
	}
}

func TestGreedyNeitherAllocatesNorChangesLogits(t *testing.T) {
	s := sample.New(greedy(), sample.Sequence{Vocab: 3, Room: math.MaxInt, EOS: []uint32{2}})
	logits := []float32{1, 2, -3}
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := s.Next(logits); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 || !slices.Equal(logits, []float32{1, 2, -3}) {
		t.Errorf("%v allocations, logits now %v", allocs, logits)
	}
}

func TestDrawDoesNotAllocateOnceWarm(t *testing.T) {
	p := &llmv1.Sampling{TopP: new(float32(0.9)), TopK: new(uint32(20)), RepetitionPenalty: new(float32(1.1)), Seed: new(uint64(1))}
	s := sample.New(p, sample.Sequence{Vocab: 64, Room: math.MaxInt})
	logits := make([]float32, 64)
	step := func() {
		for i := range logits {
			logits[i] = float32(i % 7)
		}
		if _, err := s.Next(logits); err != nil {
			t.Fatal(err)
		}
	}
	for range 2000 { // until every token has been seen
		step()
	}
	if allocs := testing.AllocsPerRun(100, step); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestBrokenLogitsAreAnError(t *testing.T) {
	for _, p := range []*llmv1.Sampling{nil, greedy(), {TopK: new(uint32(2)), TopP: new(float32(0.5))}} {
		for _, logits := range [][]float32{{}, {nan, 1, 2}, {1, 2, nan}, {0, inf, 0}} {
			if c, err := sample.New(p, sample.Sequence{Vocab: 3, Room: 9}).Next(slices.Clone(logits)); !errors.Is(err, sample.ErrLogits) {
				t.Errorf("%v with %v: %v, %v", logits, p, c, err)
			}
		}
	}
}

// The test finds the logit that a single token needs to win, which shows the logits of the other
// tokens.
func TestPenalties(t *testing.T) {
	for name, c := range map[string]struct {
		p              *llmv1.Sampling
		prompt, answer []uint32
		logits, want   []float32
	}{
		"repetition divides positive and multiplies negative logits, in prompt and answer": {
			p:      &llmv1.Sampling{RepetitionPenalty: new(float32(2))},
			prompt: []uint32{0, 1, 1}, answer: []uint32{2, 2},
			logits: []float32{4, -4, 3, 5}, want: []float32{2, -8, 1.5, 5},
		},
		"frequency counts the answer only": {
			p:      &llmv1.Sampling{FrequencyPenalty: new(float32(0.5))},
			prompt: []uint32{0, 1}, answer: []uint32{1, 2, 2, 2},
			logits: []float32{4, 4, 4, 4}, want: []float32{4, 3.5, 2.5, 4},
		},
		"presence is the same however often": {
			p:      &llmv1.Sampling{PresencePenalty: new(float32(-1.5))},
			prompt: []uint32{0}, answer: []uint32{1, 2, 2},
			logits: []float32{4, 4, 4, 4}, want: []float32{4, 5.5, 5.5, 4},
		},
		"repetition comes first, bias last": {
			p: &llmv1.Sampling{
				RepetitionPenalty: new(float32(4)), FrequencyPenalty: new(float32(1)), PresencePenalty: new(float32(0.25)),
				LogitBias: map[uint32]float32{1: 10, 3: -2},
			},
			prompt: []uint32{0}, answer: []uint32{1, 1},
			logits: []float32{8, 8, 8, 8}, want: []float32{2, 9.75, 8, 6},
		},
		"a penalty that overflows is not an error": {
			p:      &llmv1.Sampling{RepetitionPenalty: new(float32(1e-45))},
			prompt: []uint32{0}, logits: []float32{5, 6, -1, 0}, want: []float32{math.MaxFloat32, 6, -1, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.p.Temperature = new(float32(0))
			s := sample.New(c.p, sample.Sequence{Prompt: c.prompt, Vocab: 4, Room: 99})
			for _, id := range c.answer {
				force(t, s, id, 4)
			}
			logits := slices.Clone(c.logits)
			if _, err := s.Next(logits); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(logits, c.want) {
				t.Errorf("logits became %v, want %v", logits, c.want)
			}
		})
	}
}

// force makes id the next token of the answer.
func force(t *testing.T, s *sample.Sampler, id uint32, vocab int) sample.Choice {
	t.Helper()
	logits := make([]float32, vocab)
	logits[id] = 1e6
	c := next(t, s, logits...)
	if c.Token != id {
		t.Fatalf("token %d, want %d", c.Token, id)
	}
	return c
}

func TestStopConditions(t *testing.T) {
	const eos, extra = 3, 2
	goes := sample.Choice{}
	stop := sample.Choice{Hidden: true, Finish: llmv1.Finish_FINISH_STOP}
	length := sample.Choice{Finish: llmv1.Finish_FINISH_LENGTH}
	for name, c := range map[string]struct {
		p    *llmv1.Sampling
		room int
		ids  []uint32
		want sample.Choice // of the last id; the answer continues after the earlier ids
	}{
		"end of sequence":               {&llmv1.Sampling{}, 9, []uint32{0, eos}, stop},
		"ignore_eos":                    {&llmv1.Sampling{IgnoreEos: true}, 9, []uint32{eos, eos}, goes},
		"stop token":                    {&llmv1.Sampling{StopTokenIds: []uint32{extra}}, 9, []uint32{1, extra}, stop},
		"stop token despite ignore_eos": {&llmv1.Sampling{StopTokenIds: []uint32{extra}, IgnoreEos: true}, 9, []uint32{eos, extra}, stop},
		"eos named as a stop token":     {&llmv1.Sampling{StopTokenIds: []uint32{eos}, IgnoreEos: true}, 9, []uint32{1, eos}, stop},
		"max_tokens":                    {&llmv1.Sampling{MaxTokens: new(uint32(3))}, 9, []uint32{1, 1, 1}, length},
		"context":                       {&llmv1.Sampling{MaxTokens: new(uint32(30))}, 2, []uint32{1, 1}, length},
		"context, nothing asked":        {nil, 2, []uint32{1, 1}, length},
		"stop at the limit is a stop":   {&llmv1.Sampling{MaxTokens: new(uint32(2))}, 9, []uint32{1, eos}, stop},
		"min_tokens reached":            {&llmv1.Sampling{MinTokens: new(uint32(2))}, 9, []uint32{1, 1, eos}, stop},
	} {
		t.Run(name, func(t *testing.T) {
			s := sample.New(c.p, sample.Sequence{EOS: []uint32{eos}, Vocab: 4, Room: c.room})
			for i, id := range c.ids {
				got, want := force(t, s, id, 4), sample.Choice{}
				if i == len(c.ids)-1 {
					want = c.want
				}
				if want.Token = id; got != want {
					t.Fatalf("token %d: %+v, want %+v", i, got, want)
				}
			}
		})
	}
}

func TestMinTokensMasksStopConditions(t *testing.T) {
	p := &llmv1.Sampling{Temperature: new(float32(0)), MinTokens: new(uint32(2)), StopTokenIds: []uint32{2}, LogitBias: map[uint32]float32{3: 100}}
	s := sample.New(p, sample.Sequence{EOS: []uint32{3}, Vocab: 4, Room: 9})
	var got []uint32
	for range 3 {
		got = append(got, next(t, s, 1, 2, 50, 60).Token)
	}
	if want := []uint32{1, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("tokens %v, want %v", got, want)
	}
}

func TestAllTokensMaskedStillAnswers(t *testing.T) {
	for _, p := range []*llmv1.Sampling{{Temperature: new(float32(0))}, {}, {TopP: new(float32(0.5))}} {
		p.MinTokens, p.StopTokenIds = new(uint32(1)), []uint32{0, 1}
		s := sample.New(p, sample.Sequence{Vocab: 2, Room: 9})
		if c := next(t, s, 1, 2); c.Finish != llmv1.Finish_FINISH_UNSPECIFIED {
			t.Errorf("%v: %+v before min_tokens", p, c)
		}
	}
}

func TestSeedDecides(t *testing.T) {
	run := func(seed *uint64) (ids []uint32) {
		s := sample.New(&llmv1.Sampling{Seed: seed}, sample.Sequence{Vocab: 8, Room: 999})
		for range 64 {
			ids = append(ids, next(t, s, make([]float32, 8)...).Token)
		}
		return ids
	}
	if !slices.Equal(run(new(uint64(7))), run(new(uint64(7)))) {
		t.Error("the same seed gave two answers")
	}
	if slices.Equal(run(new(uint64(7))), run(new(uint64(8)))) {
		t.Error("two seeds gave the same answer")
	}
	if slices.Equal(run(nil), run(nil)) {
		t.Error("no seed gave the same answer twice")
	}
	// This answer is fixed: a seed keeps its meaning across releases.
	if got, want := run(new(uint64(7)))[:8], []uint32{3, 0, 4, 2, 6, 6, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("seed 7 starts with %v, want %v", got, want)
	}
}

// An answer that one Sampler begins and another continues equals the answer of the first Sampler
// alone, wherever it is cut.
func TestMovedAnswerContinuesIdentically(t *testing.T) {
	const tokens = 40
	random := rand.New(rand.NewPCG(5, 6))
	steps := make([][]float32, tokens)
	for i := range steps {
		steps[i] = make([]float32, 20)
		for j := range steps[i] {
			steps[i][j] = float32(random.NormFloat64())
		}
		if i%7 == 3 { // nothing to choose from; the draw must be consumed nevertheless
			for j := range steps[i] {
				steps[i][j] = -inf
			}
		}
	}
	seed := new(uint64(9))
	for name, p := range map[string]*llmv1.Sampling{
		"greedy":     greedy(),
		"seeded":     {Seed: seed},
		"top_k of 1": {Seed: seed, TopK: new(uint32(1))},
		"filtered":   {Seed: seed, TopK: new(uint32(9)), TopP: new(float32(0.9)), MinP: new(float32(0.01))},
		"penalised": {
			Seed: seed, RepetitionPenalty: new(float32(1.3)), FrequencyPenalty: new(float32(0.4)), PresencePenalty: new(float32(-0.3)),
		},
		"min_tokens":     {Seed: seed, MinTokens: new(uint32(12)), StopTokenIds: []uint32{1, 2, 3}},
		"max_tokens":     {Seed: seed, MaxTokens: new(uint32(25))},
		"greedy, biased": {Temperature: new(float32(0)), FrequencyPenalty: new(float32(1)), LogitBias: map[uint32]float32{4: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(answer []uint32) (choices []sample.Choice) {
				s := sample.New(p, sample.Sequence{Prompt: []uint32{3, 4, 5}, Answer: answer, EOS: []uint32{0}, Vocab: 20, Room: tokens})
				for i := len(answer); ; i++ {
					c := next(t, s, steps[i]...)
					if choices = append(choices, c); c.Finish != llmv1.Finish_FINISH_UNSPECIFIED {
						return choices
					}
				}
			}
			whole := run(nil)
			var answer []uint32
			for i, c := range whole {
				if got := run(answer); !slices.Equal(got, whole[i:]) {
					t.Errorf("moved after %d of %d tokens: %v, want %v", i, len(whole), got, whole[i:])
				}
				answer = append(answer, c.Token)
			}
		})
	}
}
