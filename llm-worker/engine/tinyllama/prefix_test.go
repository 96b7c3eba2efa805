package tinyllama

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/kvevents"
)

// turns returns the requests of a conversation. Each contains the prompt and the answer of the
// previous request, and new tokens.
func turns(r *rand.Rand, m *Model, n int, sampling *llmv1.Sampling) []*workerv1.TokenRequest {
	var prompt []uint32
	var all []*workerv1.TokenRequest
	for i := range n {
		for range 1 + r.IntN(90) {
			prompt = append(prompt, r.Uint32N(uint32(m.VocabSize())))
		}
		all = append(all, &workerv1.TokenRequest{Prompt: slices.Clone(prompt), Sampling: sampling})
		for range r.IntN(1 + 3*i) { // the last part may differ, as in another conversation
			prompt = prompt[:len(prompt)-1]
		}
	}
	return all
}

// An answer has the same tokens with and without cached prefixes, whether the other sequences still
// run, wherever the prompts differ, and however little room there is.
func TestCachedPrefixesChangeNoToken(t *testing.T) {
	weights := newRandomModel(5, map[string]any{"max_position_embeddings": 600}).load(t)
	for name, sampling := range map[string]*llmv1.Sampling{
		"greedy": {Temperature: new(float32(0)), MaxTokens: new(uint32(40)), IgnoreEos: true},
		"seeded": {Seed: new(uint64(4)), MaxTokens: new(uint32(40)), IgnoreEos: true, RepetitionPenalty: new(float32(1.1))},
	} {
		for _, room := range []int{9, 12, 40, 0} { // blocks; a lone request needs up to 9
			t.Run(fmt.Sprintf("%s with %d blocks", name, room), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(7, uint64(room)))
				alone := New(weights, Options{Threads: 1, NoPrefixCache: true})
				m := New(weights, Options{Threads: 2, KVTokens: room * BlockTokens})
				cached := 0
				for round := range tier.Of(4, 6) {
					var batches []*workerv1.TokenRequest
					for _, req := range turns(rand.New(rand.NewPCG(8, uint64(round%3))), m, 5, sampling) {
						batches = append(batches, req)
						if r.IntN(2) == 0 {
							batches = append(batches, &workerv1.TokenRequest{Prompt: req.GetPrompt()[:1+r.IntN(len(req.GetPrompt()))], Sampling: sampling})
						}
					}
					r.Shuffle(len(batches), func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
					cached += together(t, m, alone, batches)
				}
				if cached == 0 {
					t.Error("nothing was ever reused")
				}
				checkEmpty(t, m)
			})
		}
	}
}

// together runs requests, as many at once as there is room for. Some leave early. It compares their
// answers with answers of alone, and returns the number of cached tokens.
func together(t *testing.T, m, alone *Model, requests []*workerv1.TokenRequest) (cached int) {
	t.Helper()
	got := map[uint64][]batch.Output{}
	var live []uint64
	for next := 0; next < len(requests) || len(live) > 0; {
		for next < len(requests) && len(live) < 4 && m.Join(uint64(next), requests[next]) == nil {
			cached += m.Cached(uint64(next))
			live = append(live, uint64(next))
			next++
		}
		for _, o := range mustStep(t, m, live, nil) {
			o.Cached = 0 // counted above
			got[o.ID] = append(got[o.ID], o)
			if o.Finish != llmv1.Finish_FINISH_UNSPECIFIED || o.ID%5 == 3 && len(got[o.ID]) == 7 {
				m.Leave(o.ID)
				live = slices.DeleteFunc(live, func(id uint64) bool { return id == o.ID })
			}
		}
	}
	for i, req := range requests {
		want := generate(t, alone, uint64(i), req)[:len(got[uint64(i)])]
		if !slices.Equal(got[uint64(i)], want) {
			t.Fatalf("request %d with %d tokens: %v, want %v", i, len(req.GetPrompt()), got[uint64(i)], want)
		}
	}
	return cached
}

func TestNextTurnReadsOnlyNewTokens(t *testing.T) {
	m := New(tinyWeights(t), Options{Threads: 1})
	first := endless(100, 50)
	answer := generate(t, m, 1, first)
	second := endless(0, 5)
	second.Prompt = slices.Clone(first.GetPrompt())
	for _, o := range answer {
		second.Prompt = append(second.Prompt, o.Token)
	}
	second.Prompt = append(second.Prompt, 5, 6, 7)
	if err := m.Join(2, second); err != nil {
		t.Fatal(err)
	}
	if m.Cached(2) != 149 { // the last token of an answer is never read
		t.Errorf("%d tokens are cached", m.Cached(2))
	}
	mustStep(t, m, []uint64{2}, nil)
	if n := m.jobs[0].tokens; n != 4 {
		t.Errorf("the first step read %d tokens", n)
	}
	m.Leave(2)

	// The whole prompt is cached, but its last token must be read.
	if err := m.Join(3, first); err != nil {
		t.Fatal(err)
	}
	if m.Cached(3) != 99 {
		t.Errorf("%d tokens of 100 are cached", m.Cached(3))
	}
	m.Leave(3)
}

func TestLeastRecentlyUsedPrefixIsEvictedFirst(t *testing.T) {
	m := New(tinyWeights(t), Options{Threads: 1, KVTokens: 6 * BlockTokens})
	prompt := func(first uint32) *workerv1.TokenRequest {
		req := endless(2*BlockTokens, 1)
		req.Prompt[0] = first
		return req
	}
	cached := func(first uint32) int {
		t.Helper()
		if err := m.Join(100, prompt(first)); err != nil {
			t.Fatal(err)
		}
		defer m.Leave(100)
		return m.Cached(100)
	}
	for first := range uint32(2) {
		generate(t, m, uint64(first), prompt(first))
	}
	cached(0) // uses it
	for first := range uint32(2) {
		generate(t, m, uint64(10+first), prompt(10+first))
	}
	// Each request has room for three blocks, so at most three blocks of others remain.
	if a, b := cached(11), cached(1); a != 2*BlockTokens-1 || b != 0 {
		t.Errorf("of the newest %d tokens are cached, of the oldest %d", a, b)
	}
	if made, _ := m.pool.Made(); made != 6 {
		t.Errorf("%d blocks were made", made)
	}
}

func TestNoPrefixIsCachedWithNoPrefixCache(t *testing.T) {
	m := New(tinyWeights(t), Options{NoPrefixCache: true})
	generate(t, m, 1, endless(100, 5))
	if err := m.Join(2, endless(100, 5)); err != nil {
		t.Fatal(err)
	}
	if m.Cached(2) != 0 {
		t.Error(m.Cached(2))
	}
	m.Leave(2)
}

// FuzzPrefixes joins and leaves sequences with few different tokens, so that their prefixes often
// match in part.
//
// It compares the reported blocks with the blocks that a new sequence finds.
func FuzzPrefixes(f *testing.F) {
	f.Add([]byte("a long conversation that is begun again and again"), uint8(9))
	weights := newRandomModel(5, map[string]any{"max_position_embeddings": 600, "num_hidden_layers": 1}).load(f)
	f.Fuzz(func(t *testing.T, data []byte, room uint8) {
		held := new(kvevents.Hub)
		m := New(weights, Options{Threads: 1, KVTokens: int(room%16+4) * BlockTokens, Held: held})
		live := map[uint64]bool{}
		follower := follow(held)
		defer follower.Close()
		for i, b := range data[:min(len(data), 60)] {
			id := uint64(b % 8)
			if live[id] {
				if b&16 != 0 {
					m.Leave(id)
					delete(live, id)
				}
				mustStep(t, m, nil, nil)
				continue
			}
			req := endless(0, 3)
			for k := range 1 + int(b)/3*3 {
				req.Prompt = append(req.Prompt, uint32((k/(1+i%3*40))%3))
			}
			if m.Join(id, req) != nil {
				continue
			}
			live[id] = true
			for m.sequences[id].read < len(req.GetPrompt()) {
				mustStep(t, m, []uint64{id}, nil)
			}
			follower.check(t, m, req.GetPrompt())
		}
		for id := range live {
			m.Leave(id)
		}
		checkEmpty(t, m)
	})
}

// checkEmpty checks that no sequence holds memory.
func checkEmpty(t *testing.T, m *Model) {
	t.Helper()
	made, idle := m.pool.Made()
	if used, _ := m.KV(); used != 0 || made > m.pool.Total() || idle != made || len(m.paused) != 0 {
		t.Errorf("%d positions are used; of %d blocks, at most %d, nobody holds %d; %d sequences are paused", used, made, m.pool.Total(), idle, len(m.paused))
	}
}
