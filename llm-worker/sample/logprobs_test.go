package sample_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/sample"
)

// TestLogprobsAreTheModelsOwn compares with a float64 softmax of the raw logits, whatever the
// request does to them.
func TestLogprobsAreTheModelsOwn(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, vocab := range []int{1, 3, 700, 5000} {
		for _, top := range []uint32{0, 1, 5, 20} {
			p := &llmv1.Sampling{
				Logprobs: new(top), Temperature: new(float32(0.7)), TopP: new(float32(0.9)), Seed: new(uint64(1)), IgnoreEos: true,
				RepetitionPenalty: new(float32(3)), LogitBias: map[uint32]float32{0: 50}, PresencePenalty: new(float32(2)),
			}
			s := sample.New(p, sample.Sequence{Prompt: []uint32{0}, Vocab: vocab, Room: 100})
			for range 10 {
				logits := make([]float32, vocab)
				for i := range logits {
					logits[i] = float32(r.IntN(40)) / 3 // some are equal
				}
				ids := make([]int, vocab)
				mass := 0.0
				for i, v := range logits {
					ids[i] = i
					mass += math.Exp(float64(v))
				}
				likely := func(id int) float64 { return float64(logits[id]) - math.Log(mass) }
				slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(likely(b), likely(a)) })
				c, err := s.Next(slices.Clone(logits))
				if err != nil {
					t.Fatal(err)
				}
				if math.Abs(float64(c.Logprobs.Token)-likely(int(c.Token))) > 1e-4 || len(c.Logprobs.Top) != min(int(top), vocab) {
					t.Fatalf("token %d of %d: %v, want %v", c.Token, vocab, c.Logprobs, likely(int(c.Token)))
				}
				for i, l := range c.Logprobs.Top {
					if id := int(c.Logprobs.IDs[i]); id != ids[i] || math.Abs(float64(l)-likely(id)) > 1e-4 {
						t.Fatalf("place %d of %d: %d with %v, want %d with %v", i, vocab, id, l, ids[i], likely(ids[i]))
					}
				}
			}
		}
	}
}

func TestLogprobsChangeNoToken(t *testing.T) {
	logits := []float32{1, 2, 3, 2, 1}
	a := sample.New(&llmv1.Sampling{Seed: new(uint64(3))}, sample.Sequence{Vocab: 5, Room: 100})
	b := sample.New(&llmv1.Sampling{Seed: new(uint64(3)), Logprobs: new(uint32(2))}, sample.Sequence{Vocab: 5, Room: 100})
	for range 50 {
		if x, y := next(t, a, logits...), next(t, b, logits...); x.Token != y.Token {
			t.Fatalf("%d without, %d with logprobs", x.Token, y.Token)
		}
	}
}

func TestImpossibleTokensHaveALogprob(t *testing.T) {
	never := float32(math.Inf(-1))
	s := sample.New(&llmv1.Sampling{Logprobs: new(uint32(3))}, sample.Sequence{Vocab: 3, Room: 2})
	if c := next(t, s, never, 0, never).Logprobs; c.Token != 0 || !slices.Equal(c.IDs, []uint32{1, 0, 2}) || !slices.Equal(c.Top, []float32{0, -9999, -9999}) {
		t.Error(c)
	}
	if c := next(t, s, never, never, never).Logprobs; c.Token != -9999 {
		t.Error(c)
	}
	for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		if _, err := sample.New(&llmv1.Sampling{Logprobs: new(uint32(1))}, sample.Sequence{Vocab: 1, Room: 1}).Next([]float32{v}); err == nil {
			t.Errorf("%v is a logit", v)
		}
	}
}

func BenchmarkLogprobs(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, 32000)
	for i := range logits {
		logits[i] = r.Float32() * 20
	}
	scratch := make([]float32, len(logits))
	for name, p := range map[string]*llmv1.Sampling{"none": {}, "top 20": {Logprobs: new(uint32(20))}} {
		b.Run(name, func(b *testing.B) {
			s := sample.New(p, sample.Sequence{Vocab: len(logits), Room: math.MaxInt})
			b.ReportAllocs()
			for b.Loop() {
				copy(scratch, logits)
				if _, err := s.Next(scratch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
