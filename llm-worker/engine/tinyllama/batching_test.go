package tinyllama

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/llm-worker/batch"
)

// TestConcurrentStreamsGetTheirOwnAnswers: 64 concurrent streams give exactly llama.cpp's answers to single
// requests. They join one after another and are stepped in changing order, on several threads.
func TestConcurrentStreamsGetTheirOwnAnswers(t *testing.T) {
	var short []golden
	for _, g := range goldens(t) {
		if len(g.Answer) < 60 && len(g.Prompt) < 100 {
			short = append(short, g)
		}
	}
	m := New(tinyWeights(t), Options{Threads: 3, PrefillChunk: 48})
	random := rand.New(rand.NewPCG(1, 2))
	const streams = 64
	answers := make([][]batch.Output, streams)
	var live []uint64
	joined := 0
	for joined < streams || len(live) > 0 {
		for range min(5, streams-joined) {
			if err := m.Join(uint64(joined), short[joined%len(short)].request()); err != nil {
				t.Fatal(err)
			}
			live = append(live, uint64(joined))
			joined++
		}
		random.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		for _, o := range mustStep(t, m, live, nil) {
			answers[o.ID] = append(answers[o.ID], o)
			if o.Finish != llmv1.Finish_FINISH_UNSPECIFIED {
				m.Leave(o.ID)
				live = slices.DeleteFunc(live, func(id uint64) bool { return id == o.ID })
			}
		}
	}
	for i, got := range answers {
		short[i%len(short)].check(t, got)
	}
	if used, _ := m.KV(); used != 0 {
		t.Errorf("%d tokens of KV cache are still reserved", used)
	}
}

// TestBatchesDoNotChangeABit: tokens and every bit of the KV cache are the same whatever else is in the
// batch, with any chunks, on any number of threads.
func TestBatchesDoNotChangeABit(t *testing.T) {
	weights := map[string]*Weights{
		"whence-tiny": tinyWeights(t),
		// Odd sizes, so that every kernel has an incomplete last block.
		"odd":   newRandomModel(3, map[string]any{"hidden_size": 44, "intermediate_size": 51, "head_dim": 6, "vocab_size": 401}).load(t),
		"Qwen3": newRandomModel(4, family("Qwen3", map[string]any{"head_dim": 10})).load(t),
	}
	formats := Formats[1:]
	if !tier.IsFull() {
		formats = formats[:1]
	}
	for _, format := range formats { // large enough for several workers
		large := newRandomModel(7, map[string]any{"hidden_size": 332, "intermediate_size": 531, "head_dim": 46, "vocab_size": 2401})
		weights["large, "+format] = large.loadAs(t, format)
	}
	for name, w := range weights {
		t.Run(name, func(t *testing.T) {
			want := traceOf(t, New(w, Options{Threads: 1}), 0)
			for _, opts := range []Options{
				{Threads: 4, PrefillChunk: 64}, {Threads: 1, PrefillChunk: 7}, {Threads: 1, PrefillChunk: 1}, {Threads: 2, PrefillChunk: 1000},
			}[:tier.Of(2, 4)] {
				counts := []int{3, 0, 1, 20}[:tier.Of(1, 4)]
				if w.config.Hidden > 300 {
					counts = []int{4} // more would be slow
				}
				for _, others := range counts {
					got := traceOf(t, New(w, opts), others)
					if !slices.Equal(got.tokens, want.tokens) || !slices.Equal(got.bits, want.bits) {
						t.Errorf("%+v with %d others: %d tokens %v, want %v; KV cache equal: %v",
							opts, others, len(got.tokens), got.tokens, want.tokens, slices.Equal(got.bits, want.bits))
					}
				}
			}
		})
	}
}

// A trace is a sequence's tokens and the bits of its KV cache.
type trace struct {
	tokens []uint32
	bits   []uint32
}

// traceOf runs one sequence of 150 tokens in a batch with others, which come and go.
func traceOf(t *testing.T, m *Model, others int) (result trace) {
	t.Helper()
	random := rand.New(rand.NewPCG(6, uint64(others)))
	request := func(seed uint64, prompt int, answer uint32) *workerv1.TokenRequest {
		source := rand.New(rand.NewPCG(seed, 0))
		req := &workerv1.TokenRequest{Sampling: &llmv1.Sampling{Seed: &seed, MaxTokens: &answer, IgnoreEos: true}}
		for range prompt {
			req.Prompt = append(req.Prompt, source.Uint32N(uint32(m.VocabSize())))
		}
		return req
	}
	const subject = 1 << 40
	if err := m.Join(subject, request(1, 110, 40)); err != nil {
		t.Fatal(err)
	}
	live, next := []uint64{subject}, uint64(2)
	for {
		for len(live) <= others {
			if err := m.Join(next, request(next, 1+random.IntN(90), 1+random.Uint32N(30))); err != nil {
				t.Fatal(err)
			}
			live, next = append(live, next), next+1
		}
		random.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		for _, o := range mustStep(t, m, live, nil) {
			if o.ID == subject {
				result.tokens = append(result.tokens, o.Token)
			}
			if o.Finish == llmv1.Finish_FINISH_UNSPECIFIED {
				continue
			}
			if o.ID == subject {
				for _, b := range m.sequences[subject].memory.Blocks {
					for _, v := range b {
						result.bits = append(result.bits, math.Float32bits(v))
					}
				}
				return result
			}
			m.Leave(o.ID)
			live = slices.DeleteFunc(live, func(id uint64) bool { return id == o.ID })
		}
	}
}

// TestBatchesDoNotChangeABitOfTheLogits: the logits, which are not in the KV cache, are the same for one
// sequence alone and for any row of a batch.
func TestBatchesDoNotChangeABitOfTheLogits(t *testing.T) {
	w := newRandomModel(3, map[string]any{"hidden_size": 44, "intermediate_size": 51, "head_dim": 6, "vocab_size": 1401}).load(t)
	const answer = 12
	logits := func(others int) (all [][]float32) {
		m := New(w, Options{Threads: 1, PrefillChunk: 1 << 12}) // all prompts in one step
		var ids []uint64
		for i := range others + 1 {
			if err := m.Join(uint64(i), endless(5+i, answer+10*min(i, 1))); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, uint64(others-i))
		}
		// the other prompts come first, so this sequence is in the last row from now on
		for m.sequences[0].read < 5 {
			mustStep(t, m, ids, nil)
		}
		for range answer - 1 {
			mustStep(t, m, ids, nil)
			// greedy sampling leaves them unchanged
			all = append(all, slices.Clone(m.lane.logits[others*1401:(others+1)*1401]))
		}
		return all
	}
	want := logits(0)
	for others := 1; others < logitRows; others += 3 {
		for i, got := range logits(others) {
			for j, v := range got {
				if math.Float32bits(v) != math.Float32bits(want[i][j]) {
					t.Fatalf("%d others, token %d: logit %d is %v, alone %v", others, i, j, v, want[i][j])
				}
			}
		}
	}
}
