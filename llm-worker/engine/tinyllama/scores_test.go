package tinyllama

import (
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
)

// TestScoresOfAPromptAreThoseOfItsPrefixes: the token after each prefix has the bits that it has as the
// first token of an answer to the prefix, in whatever chunks the prompt is read, beside other sequences,
// with a cache that knows it, and after a pause.
func TestScoresOfAPromptAreThoseOfItsPrefixes(t *testing.T) {
	weights := newRandomModel(5, nil).load(t)
	const each = 20
	request := func(prompt []uint32, n int) *workerv1.TokenRequest {
		return &workerv1.TokenRequest{Prompt: prompt, Sampling: &llmv1.Sampling{Temperature: new(float32(0)), MaxTokens: new(uint32(n)), IgnoreEos: true, Logprobs: new(uint32(each))}}
	}
	alone, prompt := New(weights, Options{Threads: 1, NoPrefixCache: true}), random(3, 150, 50)
	var want workerv1.PromptLogprobs
	for n := 1; n < len(prompt); n++ {
		p := generate(t, alone, uint64(n), request(prompt[:n], 1))[0].Logprobs
		want.TopIds, want.TopLogprobs = append(want.TopIds, p.IDs...), append(want.TopLogprobs, p.Top...)
	}
	for name, opts := range map[string]Options{
		"alone":     {Threads: 2, PrefillChunk: 7},
		"in chunks": {Threads: 2, PrefillChunk: 130},
		"paused":    {Threads: 2, KVTokens: 14 * BlockTokens},
	} {
		m := New(weights, opts)
		generate(t, m, 1, request(prompt, 2)) // the cache knows the prompt
		others := []uint64{2, 3}
		for _, id := range others {
			if err := m.Join(id, request(random(id, 20, 50), 100)); err != nil {
				t.Fatal(err)
			}
		}
		scored := request(prompt, 3)
		scored.Sampling.PromptLogprobs = true
		if err := m.Join(4, scored); err != nil {
			t.Fatal(name, err)
		}
		var got []batch.Output
		for live := append(others, 4); len(live) > 0; {
			for _, out := range mustStep(t, m, live, nil) {
				if out.Finish != llmv1.Finish_FINISH_UNSPECIFIED {
					m.Leave(out.ID)
					live = slices.DeleteFunc(live, func(id uint64) bool { return id == out.ID })
				}
				if out.ID == 4 {
					got = append(got, out)
				} else if out.Prompt != nil {
					t.Fatal("another sequence has scores")
				}
			}
		}
		if len(got) != 3 || got[0].Prompt == nil || got[1].Prompt != nil {
			t.Fatalf("%s: %v", name, got)
		}
		if p := got[0].Prompt; !slices.Equal(p.GetTopIds(), want.GetTopIds()) || !slices.Equal(p.GetTopLogprobs(), want.GetTopLogprobs()) || len(p.GetLogprobs()) != len(prompt)-1 {
			t.Errorf("%s: the scores differ", name)
		}
		for i, p := range got[0].Prompt.GetLogprobs() {
			if at := slices.Index(want.GetTopIds()[i*each:(i+1)*each], prompt[i+1]); at >= 0 && want.GetTopLogprobs()[i*each+at] != p || at < 0 && p > want.GetTopLogprobs()[(i+1)*each-1] {
				t.Fatalf("%s: token %d has %v", name, i+1, p)
			}
		}
	}
}

func TestScoresAreRefusedOrAbsent(t *testing.T) {
	weights := newRandomModel(5, map[string]any{"max_position_embeddings": 20000}).load(t)
	m := New(weights, Options{Threads: 1})
	long := &workerv1.TokenRequest{Prompt: random(1, 15000, 50), Sampling: &llmv1.Sampling{Logprobs: new(uint32(20)), PromptLogprobs: true}}
	if err := m.Check(long); err == nil {
		t.Error("15,000 tokens with 20 alternatives each are accepted")
	}
	long.Sampling.Logprobs = new(uint32(1))
	if err := m.Check(long); err != nil {
		t.Error(err)
	}
	if err := m.Check(&workerv1.TokenRequest{Prompt: []uint32{1}, Sampling: &llmv1.Sampling{PromptLogprobs: true}}); err == nil {
		t.Error("prompt_logprobs without logprobs is accepted")
	}
	moved := &workerv1.TokenRequest{Prompt: []uint32{1, 2, 3}, Generated: 1, Sampling: &llmv1.Sampling{Logprobs: new(uint32(1)), PromptLogprobs: true, MaxTokens: new(uint32(2))}}
	if out := generate(t, m, 1, moved); out[0].Prompt != nil {
		t.Error("an answer that continues another one has scores")
	}
}
