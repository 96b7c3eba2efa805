package tinyllama

import (
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestCheckRefusesByName(t *testing.T) {
	m := New(tinyWeights(t), Options{KVTokens: 500})
	ask := func(p *llmv1.Sampling, prompt ...uint32) *workerv1.TokenRequest {
		return &workerv1.TokenRequest{Prompt: prompt, Sampling: p}
	}
	long := func(n int) []uint32 { return make([]uint32, n) }
	for _, c := range []struct {
		param string
		req   *workerv1.TokenRequest
	}{
		{"prompt", nil},
		{"prompt", ask(nil)},
		{"prompt[2]", ask(nil, 0, 1535, 1536)},
		{"prompt[0]", ask(nil, math.MaxUint32)},
		{"prompt", ask(nil, long(1024)...)},
		{"prompt", ask(&llmv1.Sampling{MaxTokens: new(uint32(1))}, long(1023)...)},
		{"prompt", ask(&llmv1.Sampling{MaxTokens: new(uint32(1))}, long(512)...)},
		{"sampling.max_tokens", ask(&llmv1.Sampling{MaxTokens: new(uint32(0))}, 1)},
		{"sampling.temperature", ask(&llmv1.Sampling{Temperature: new(float32(-1))}, 1)},
		{"sampling.logit_bias", ask(&llmv1.Sampling{LogitBias: map[uint32]float32{1536: 0}}, 1)},
	} {
		for _, err := range []error{m.Check(c.req), m.Join(1, c.req)} {
			e, ok := errors.AsType[*streamerr.Error](err)
			if !ok || e.Reason != streamerr.Invalid || e.Param != c.param || e.Message == "" {
				t.Errorf("%.80v: %v, want a refusal of %s", c.req, err, c.param)
			}
		}
	}
	if err := m.Check(ask(&llmv1.Sampling{MaxTokens: new(uint32(412))}, long(100)...)); err != nil {
		t.Errorf("500 tokens are 8 blocks, 512 tokens: %v", err)
	}
	if used, total := m.KV(); used != 0 || total != 512 {
		t.Errorf("KV is %d of %d", used, total)
	}
}

func TestZeroOptionsTakeTheModelsContext(t *testing.T) {
	m := New(tinyWeights(t), Options{})
	if m.ContextLength() != 1024 || m.VocabSize() != 1536 || !slices.Equal(m.EOS(), []uint32{1533, 1535}) {
		t.Errorf("context %d, vocabulary %d, EOS %v", m.ContextLength(), m.VocabSize(), m.EOS())
	}
	if err := m.Check(&workerv1.TokenRequest{Prompt: []uint32{1}}); err != nil {
		t.Error(err)
	}
	if m := New(tinyWeights(t), Options{ContextLength: 100}); m.ContextLength() != 100 || m.Check(endless(100, 1)) == nil {
		t.Error("a shorter context does not hold")
	}
}

// A sequence needs room for its known tokens, and leaves one block of room for each other sequence.
func TestJoinNeedsRoomForKnownTokens(t *testing.T) {
	m := New(tinyWeights(t), Options{KVTokens: 6 * BlockTokens})
	join := func(id uint64, prompt, answer int, want error) {
		t.Helper()
		if err := m.Join(id, endless(prompt, answer)); !errors.Is(err, want) {
			t.Errorf("join %d: %v, want %v", id, err, want)
		}
	}
	used := func(want uint64) {
		t.Helper()
		if used, total := m.KV(); used != want*BlockTokens || total != 6*BlockTokens {
			t.Errorf("KV is %d of %d, want %d blocks of 6", used, total, want)
		}
	}
	join(1, 100, 200, nil) // two blocks for the prompt
	join(2, 10, 100, nil)
	used(3)
	join(3, 120, 1, batch.ErrFull) // would leave one block for two others
	used(3)
	join(3, 60, 100, nil)
	used(4)
	if err := m.Join(1, endless(1, 1)); err == nil || errors.Is(err, batch.ErrFull) {
		t.Errorf("a second sequence 1: %v", err)
	}
	m.Leave(1)
	used(2)
	m.Leave(1) // has left already
	m.Leave(77)
	used(2)
	join(4, 120, 5, nil)
	used(4)
}

func TestContextLengthEndsTheAnswer(t *testing.T) {
	m := New(tinyWeights(t), Options{ContextLength: 70})
	for _, asked := range []*uint32{nil, new(uint32(math.MaxUint32)), new(uint32(60))} {
		req := endless(60, 0)
		req.Sampling.MaxTokens = asked
		got := generate(t, m, 1, req)
		if len(got) != 10 || got[9].Finish != llmv1.Finish_FINISH_LENGTH || got[9].Hidden {
			t.Errorf("max_tokens %v: %d tokens, the last is %+v", asked, len(got), got[len(got)-1])
		}
	}
}

func TestBlocksAreUsedAgainAndNeverMoreThanReserved(t *testing.T) {
	m := New(tinyWeights(t), Options{KVTokens: 6 * BlockTokens, NoPrefixCache: true})
	made := map[*float32]bool{}
	for round := range uint64(5) {
		ids := []uint64{3 * round, 3*round + 1, 3*round + 2}
		for _, id := range ids {
			if err := m.Join(id, endless(60, 20)); err != nil {
				t.Fatal(err)
			}
		}
		for range 25 {
			live := slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { return m.sequences[id].finished })
			mustStep(t, m, live, nil)
		}
		for _, id := range ids {
			if s := m.sequences[id]; !s.finished || len(s.memory.Blocks) != 2 {
				t.Errorf("sequence %d: finished %v, %d blocks", id, s.finished, len(s.memory.Blocks))
			}
			for _, b := range m.sequences[id].memory.Blocks {
				made[&b[0]] = true
			}
			m.Leave(id)
		}
	}
	if all, idle := m.pool.Made(); len(made) != 6 || all != 6 || idle != 6 {
		t.Errorf("%d blocks were seen, %d made, and %d are free", len(made), all, idle)
	}
}

// A sequence must not see the old content of a block, even if it is NaN.
func TestBlocksAreCleanWhenUsedAgain(t *testing.T) {
	m := New(tinyWeights(t), Options{NoPrefixCache: true})
	want := generate(t, m, 1, endless(30, 60))
	if err := m.Join(2, endless(30, 60)); err != nil {
		t.Fatal(err)
	}
	m.pool.Grow(m.sequences[2].memory, 90)
	for _, b := range m.sequences[2].memory.Blocks {
		for i := range b {
			b[i] = float32(math.NaN())
		}
	}
	m.Leave(2)
	if got := generate(t, m, 1, endless(30, 60)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestPrefillIsBoundedAndInOrder(t *testing.T) {
	m := New(tinyWeights(t), Options{PrefillChunk: 16})
	for id, prompt := range map[uint64]int{1: 4, 2: 25, 3: 6, 4: 1} {
		if err := m.Join(id, endless(prompt, 50)); err != nil {
			t.Fatal(err)
		}
	}
	ids := []uint64{1, 2, 3, 4}
	for step, want := range []map[uint64]int{
		{1: 4, 2: 12},       // 1 gets its first token
		{1: 1, 2: 13, 3: 3}, // 2 gets its first token
		{1: 1, 2: 1, 3: 3, 4: 1},
		{1: 1, 2: 1, 3: 1, 4: 1},
	} {
		out := mustStep(t, m, ids, nil)
		got := map[uint64]int{}
		for _, j := range m.jobs {
			got[j.id] = j.tokens
		}
		if !maps.Equal(got, want) {
			t.Errorf("step %d read %v, want %v", step, got, want)
		}
		if wantOut := []int{1, 2, 4, 4}[step]; len(out) != wantOut {
			t.Errorf("step %d gave %v, want %d tokens", step, out, wantOut)
		}
	}
}

func TestStepRefusesUnknownAndFinishedSequences(t *testing.T) {
	m := New(tinyWeights(t), Options{})
	if out, err := m.Step(nil, nil); len(out) != 0 || err != nil {
		t.Errorf("no ids: %v, %v", out, err)
	}
	if _, err := m.Step([]uint64{1}, nil); err == nil {
		t.Error("a stranger was stepped")
	}
	if err := m.Join(1, endless(1, 1)); err != nil {
		t.Fatal(err)
	}
	mustStep(t, m, []uint64{1}, nil)
	if _, err := m.Step([]uint64{1}, nil); err == nil {
		t.Error("a finished sequence was stepped")
	}
}

func TestNaNFailsOnlyItsSequence(t *testing.T) {
	random := newRandomModel(1, nil)
	random.tensors["model.norm.weight"].values[3] = float32(math.NaN())
	m := New(random.load(t), Options{})
	for id := range uint64(2) {
		if err := m.Join(id, &workerv1.TokenRequest{Prompt: []uint32{1, 2, 3}}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := m.Step([]uint64{0, 1}, nil)
	if err != nil || len(out) != 2 {
		t.Fatal(out, err)
	}
	for id, o := range out {
		if !errors.Is(o.Err, streamerr.EngineFailed) || o.ID != uint64(id) {
			t.Error(o)
		}
	}
}

func TestCheckIsSafeBesideSteps(t *testing.T) {
	m := New(tinyWeights(t), Options{Threads: 2})
	var group sync.WaitGroup
	group.Go(func() {
		for range 200 {
			if err := m.Check(endless(20, 20)); err != nil {
				t.Error(err)
			}
		}
	})
	generate(t, m, 1, endless(20, 20))
	group.Wait()
}

func TestStepsHardlyAllocate(t *testing.T) {
	m := New(tinyWeights(t), Options{Threads: 1})
	var ids []uint64
	for id := range uint64(8) {
		ids = append(ids, id)
		if err := m.Join(id, endless(4, 60)); err != nil {
			t.Fatal(err)
		}
	}
	out := mustStep(t, m, ids, nil)
	if allocs := testing.AllocsPerRun(40, func() { out = mustStep(t, m, ids, out[:0]) }); allocs > 0 {
		t.Errorf("%v allocations a step", allocs)
	}
}
