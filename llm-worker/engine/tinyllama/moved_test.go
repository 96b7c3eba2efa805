package tinyllama

import (
	"io/fs"
	"slices"
	"sync"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/guide"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// TestMovedSequenceGetsTheSameTokens: an answer that another worker began continues with exactly the tokens
// of the undisturbed answer, wherever it was cut.
func TestMovedSequenceGetsTheSameTokens(t *testing.T) {
	greedy := goldens(t)[0]
	seed := new(uint64(4))
	for name, p := range map[string]*llmv1.Sampling{
		"greedy":    {Temperature: new(float32(0)), MaxTokens: new(uint32(70))},
		"seeded":    {Seed: seed, MaxTokens: new(uint32(70))},
		"filtered":  {Seed: seed, Temperature: new(float32(1.2)), TopP: new(float32(0.9)), TopK: new(uint32(30)), MaxTokens: new(uint32(50))},
		"penalised": {Seed: seed, RepetitionPenalty: new(float32(1.2)), FrequencyPenalty: new(float32(0.5)), PresencePenalty: new(float32(0.3)), MaxTokens: new(uint32(50))},
		"greedy and penalised": {
			Temperature: new(float32(0)), RepetitionPenalty: new(float32(1.1)), FrequencyPenalty: new(float32(0.2)), MaxTokens: new(uint32(50)),
		},
		"min_tokens": {Seed: seed, MinTokens: new(uint32(30)), MaxTokens: new(uint32(60))},
		"guided":     {Seed: seed, MaxTokens: new(uint32(60)), Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"type":"array","minItems":3}`}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := New(tinyWeights(t), Options{Threads: 1, Vocabulary: tinyVocabulary(t)})
			whole := generate(t, m, 0, &workerv1.TokenRequest{Prompt: greedy.Prompt, Sampling: p})
			if len(whole) < 10 {
				t.Fatalf("an answer of %d tokens is too short for this test", len(whole))
			}
			moved := slices.Clone(greedy.Prompt)
			for i, o := range whole[:len(whole)-1] {
				moved = append(moved, o.Token)
				if i%tier.Of(6, 1) > 0 {
					continue
				}
				// another process
				m := New(tinyWeights(t), Options{Threads: 1, PrefillChunk: 1 + i%40, Vocabulary: tinyVocabulary(t)})
				got := generate(t, m, 0, &workerv1.TokenRequest{Prompt: slices.Clone(moved), Sampling: p, Generated: uint32(i + 1)})
				if !slices.Equal(got, whole[i+1:]) {
					t.Fatalf("moved after %d of %d tokens: %v, want %v", i+1, len(whole), got, whole[i+1:])
				}
			}
		})
	}
}

func TestCheckRefusesInvalidOrCompleteAnswers(t *testing.T) {
	m := New(tinyWeights(t), Options{Vocabulary: tinyVocabulary(t)})
	for _, req := range []*workerv1.TokenRequest{
		{Prompt: make([]uint32, 5), Generated: 5},
		{Prompt: make([]uint32, 5), Generated: 1 << 31},
		{Prompt: make([]uint32, 5), Generated: 3, Sampling: &llmv1.Sampling{MaxTokens: new(uint32(3))}},
		{Prompt: make([]uint32, 5), Generated: 4, Sampling: &llmv1.Sampling{MaxTokens: new(uint32(3))}},
		{Prompt: make([]uint32, 5), Generated: 1, Sampling: &llmv1.Sampling{Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: "{}"}}}}},
	} {
		if e := streamerr.As(m.Check(req)); e.Reason != streamerr.Invalid || e.Param != "generated" {
			t.Errorf("%v: %v, want a refusal of generated", req, e)
		}
	}
	if err := m.Check(&workerv1.TokenRequest{Prompt: make([]uint32, 5), Generated: 4, Sampling: &llmv1.Sampling{MaxTokens: new(uint32(5))}}); err != nil {
		t.Error(err)
	}
}

var tinyVocabulary = func() func(testing.TB) *guide.Vocabulary {
	load := sync.OnceValues(func() (*guide.Vocabulary, error) {
		b, err := fs.ReadFile(whencetiny.FS(), "tokenizer.json")
		if err != nil {
			return nil, err
		}
		tok, err := tokenizer.Load(b)
		if err != nil {
			return nil, err
		}
		return guide.NewVocabulary(tok)
	})
	return func(t testing.TB) *guide.Vocabulary {
		t.Helper()
		v, err := load()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}()
