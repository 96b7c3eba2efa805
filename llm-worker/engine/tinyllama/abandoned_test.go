package tinyllama

import (
	"slices"
	"sync"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
)

// TestAbandonedPromptStopsBetweenTwoLayers: a reader leaves in the first layer of a step of 512 tokens.
func TestAbandonedPromptStopsBetweenTwoLayers(t *testing.T) {
	m := New(tinyWeights(t), Options{Threads: 2, PrefillChunk: 512})
	if err := m.Join(1, endless(512, 10)); err != nil {
		t.Fatal(err)
	}
	layer, attend := -1, m.lane.parts.attend
	var mu sync.Mutex
	m.lane.parts.attend = func(worker, first, last int) {
		mu.Lock()
		layer = max(layer, m.lane.number)
		mu.Unlock()
		m.Abandon(1)
		attend(worker, first, last)
	}
	if out := mustStep(t, m, []uint64{1}, nil); len(out) != 0 {
		t.Error(out)
	}
	if layer != 0 || m.sequences[1].read != 0 {
		t.Errorf("layer %d ran, and %d tokens were read", layer, m.sequences[1].read)
	}
	m.lane.parts.attend = attend
	m.Leave(1)
	checkEmpty(t, m)
	// The same prompt finds nothing of the incomplete tile in the cache.
	want := generate(t, New(tinyWeights(t), Options{}), 2, endless(512, 10))
	if got := generate(t, m, 2, endless(512, 10)); !slices.Equal(got, want) {
		t.Errorf("the answer after an abandoned step is %v, want %v", got, want)
	}
	// A reader may leave when the model has just forgotten the sequence.
	m.Abandon(1)
	mustStep(t, m, nil, nil)
	if n := m.abandoned.size.Load(); n != 0 {
		t.Errorf("%d sequences are still abandoned", n)
	}
}

// TestAbandonedStreamsChangeNoOtherAnswer: readers leave while steps run, and the streams in the same
// tiles get llama.cpp's answers.
func TestAbandonedStreamsChangeNoOtherAnswer(t *testing.T) {
	m := New(tinyWeights(t), Options{Threads: 2, PrefillChunk: 100})
	for i, g := range goldens(t)[:12] {
		const kept, prompt, text = 1 << 30, 1<<30 + 1, 1<<30 + 2
		for id, err := range map[string]error{
			"kept": m.Join(kept, g.request()), "prompt": m.Join(prompt, endless(300, 10)), "text": m.JoinEmbed(text, endless(200, 1).GetPrompt()),
		} {
			if err != nil {
				t.Fatal(id, err)
			}
		}
		var got []batch.Output
		var leaving sync.WaitGroup
		leaving.Go(func() { m.Abandon(text); m.Abandon(prompt) })
		for len(got) == 0 || got[len(got)-1].Finish == llmv1.Finish_FINISH_UNSPECIFIED {
			ids := []uint64{kept, text, prompt}
			if i%2 == 1 { // so that the prompt gets the tokens that a step may read
				ids = []uint64{kept, prompt, text}
			}
			if len(got) > 3 { // as the batch loop does before a step
				leaving.Wait()
				m.Leave(text)
				m.Leave(prompt)
				ids = []uint64{kept}
			}
			ids = slices.DeleteFunc(ids, func(id uint64) bool { return m.sequences[id].finished })
			for _, o := range mustStep(t, m, ids, nil) {
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				if o.ID == kept {
					got = append(got, o)
				}
			}
		}
		g.check(t, got)
		leaving.Wait()
		for _, id := range []uint64{kept, prompt, text} {
			m.Leave(id)
		}
		checkEmpty(t, m)
	}
}
