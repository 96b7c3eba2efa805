package sample_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/sample"
)

// distribution is the textbook version of temperature, min_p, top_k and top_p: in float64, with
// everything sorted.
func distribution(p *llmv1.Sampling, logits []float32) []float64 {
	temperature, topP := 1.0, 1.0
	if p.Temperature != nil {
		temperature = float64(*p.Temperature)
	}
	if p.TopP != nil {
		topP = float64(*p.TopP)
	}
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	best := float64(logits[order[0]])
	weight := func(i int) float64 { return math.Exp((float64(logits[i]) - best) / temperature) }
	order = slices.DeleteFunc(order, func(i int) bool { return weight(i) < float64(p.GetMinP()) })
	if k := int(p.GetTopK()); k > 0 {
		order = order[:min(k, len(order))]
	}
	total := 0.0
	for _, i := range order {
		total += weight(i)
	}
	mass, kept := 0.0, 0
	for kept < len(order) && (kept == 0 || mass < topP*total) {
		mass += weight(order[kept])
		kept++
	}
	out := make([]float64, len(logits))
	for _, i := range order[:kept] {
		out[i] = weight(i) / mass
	}
	return out
}

// A fixed seed makes this exact. The limit is that of a chi-squared test at 0.1 %.
func TestDrawFollowsTheDistribution(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	bell := make([]float32, 40)
	for i := range bell {
		bell[i] = float32(random.NormFloat64() * 2)
	}
	logits := bell
	for name, p := range map[string]*llmv1.Sampling{
		"defaults":         {},
		"cool":             {Temperature: new(float32(0.5))},
		"hot":              {Temperature: new(float32(3))},
		"top_k":            {TopK: new(uint32(5))},
		"top_k of all":     {TopK: new(uint32(4000))},
		"top_p":            {TopP: new(float32(0.8))},
		"narrow top_p":     {TopP: new(float32(0.01))},
		"min_p":            {MinP: new(float32(0.2))},
		"top_k then top_p": {TopK: new(uint32(6)), TopP: new(float32(0.7))},
		"everything":       {Temperature: new(float32(1.5)), TopK: new(uint32(20)), TopP: new(float32(0.9)), MinP: new(float32(0.05))},
		"min_p of 1":       {MinP: new(float32(1))},
	} {
		t.Run(name, func(t *testing.T) {
			p.Seed = new(uint64(11))
			want := distribution(p, logits)
			s := sample.New(p, sample.Sequence{Vocab: len(logits), Room: math.MaxInt})
			const draws = 20000
			counts := make([]float64, len(logits))
			for range draws {
				counts[next(t, s, logits...).Token]++
			}
			chi, freedom := 0.0, -1.0
			for i, probability := range want {
				if probability == 0 && counts[i] > 0 {
					t.Fatalf("token %d was dropped, but drawn %v times", i, counts[i])
				}
				if expected := probability * draws; expected >= 5 {
					chi += (counts[i] - expected) * (counts[i] - expected) / expected
					freedom++
				}
			}
			if limit := freedom + 4.5*math.Sqrt(2*max(freedom, 1)) + 5; chi > limit {
				t.Errorf("chi squared is %.1f, over %.1f", chi, limit)
			}
		})
	}
}

// A route may add small seeds to requests without one, so first draws must differ between small
// seeds, too.
func TestFirstDrawsSpreadOverSmallSeeds(t *testing.T) {
	const seeds, tokens = 20000, 50
	counts := make([]float64, tokens)
	for seed := range uint64(seeds) {
		s := sample.New(&llmv1.Sampling{Seed: &seed}, sample.Sequence{Vocab: tokens, Room: 1})
		counts[next(t, s, make([]float32, tokens)...).Token]++
	}
	chi := 0.0
	for _, n := range counts {
		chi += (n - seeds/tokens) * (n - seeds/tokens) / (seeds / tokens)
	}
	if chi > 90 || chi < 20 { // 49 degrees of freedom: 0.1 % on either side are outside
		t.Errorf("chi squared is %.1f", chi)
	}
}

func TestFiltersNeverDropTheMostLikelyToken(t *testing.T) {
	for _, p := range []*llmv1.Sampling{
		{TopK: new(uint32(1))}, {TopP: new(float32(math.SmallestNonzeroFloat32))}, {MinP: new(float32(1))},
		{Temperature: new(float32(math.SmallestNonzeroFloat32))}, {Temperature: new(float32(math.SmallestNonzeroFloat32)), TopP: new(float32(0.5))},
	} {
		s := sample.New(p, sample.Sequence{Vocab: 5, Room: 999})
		for range 50 {
			if c := next(t, s, 1, 2, 4, 3.9, -inf); c.Token != 2 {
				t.Fatalf("%v drew token %d", p, c.Token)
			}
		}
	}
}

func FuzzSample(f *testing.F) {
	f.Add(float32(1), float32(0.9), uint32(3), float32(0.1), float32(1.2), float32(0.5), float32(-0.5), float32(3), uint64(1), uint32(1), uint32(2), []byte{1, 2, 250, 3, 77})
	f.Add(float32(0), float32(1), uint32(0), float32(0), float32(1), float32(0), float32(0), float32(0), uint64(0), uint32(0), uint32(0), []byte{0})
	f.Add(float32(1e-45), float32(1e-45), uint32(9), float32(1), float32(1e-45), float32(2), float32(2), float32(-100), uint64(9), uint32(9), uint32(9), []byte{255, 254, 253, 252})
	f.Fuzz(func(t *testing.T, temperature, topP float32, topK uint32, minP, repetition, frequency, presence, bias float32, seed uint64, minTokens, stop uint32, raw []byte) {
		if len(raw) == 0 || len(raw) > 200 {
			return
		}
		p := &llmv1.Sampling{
			Temperature: &temperature, TopP: &topP, TopK: &topK, MinP: &minP, RepetitionPenalty: &repetition, FrequencyPenalty: &frequency,
			PresencePenalty: &presence, LogitBias: map[uint32]float32{stop: bias}, Seed: &seed, MinTokens: &minTokens, StopTokenIds: []uint32{stop},
		}
		valid := sample.Validate(p, len(raw)) == nil
		s := sample.New(p, sample.Sequence{Prompt: []uint32{0, stop}, EOS: []uint32{1}, Vocab: len(raw), Room: 4})
		logits := make([]float32, len(raw))
		for range 4 {
			for i, b := range raw {
				logits[i] = float32(int8(b)) / 4
			}
			c, err := s.Next(logits)
			if valid && err != nil {
				t.Fatalf("%v: %v", p, err)
			}
			if err == nil && int(c.Token) >= len(raw) {
				t.Fatalf("token %d of %d", c.Token, len(raw))
			}
			if err != nil || c.Finish != llmv1.Finish_FINISH_UNSPECIFIED {
				return
			}
		}
		t.Fatal("room for four tokens did not end the answer")
	})
}

func BenchmarkNext(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	fresh := make([]float32, 1536)
	for i := range fresh {
		fresh[i] = float32(random.NormFloat64() * 3)
	}
	for _, c := range []struct {
		name string
		p    *llmv1.Sampling
	}{
		{"greedy", greedy()},
		{"temperature", &llmv1.Sampling{}},
		{"top_p", &llmv1.Sampling{TopP: new(float32(0.9))}},
		{"top_k", &llmv1.Sampling{TopK: new(uint32(40))}},
		{"top_k+top_p+penalty", &llmv1.Sampling{TopK: new(uint32(40)), TopP: new(float32(0.9)), RepetitionPenalty: new(float32(1.1))}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			s := sample.New(c.p, sample.Sequence{Vocab: len(fresh), Room: math.MaxInt})
			logits := make([]float32, len(fresh))
			for b.Loop() {
				copy(logits, fresh)
				if _, err := s.Next(logits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
