package tinyllama

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/kvevents"
)

// Requests that need more memory than there is are paused, and get the tokens that they get alone.
//
//nolint:gocognit // one story, read from above to below
func TestPausedSequencesGetTheSameTokens(t *testing.T) {
	weights := newRandomModel(5, map[string]any{"max_position_embeddings": 600}).load(t)
	for name, opts := range map[string]Options{
		"cached prefixes":    {Threads: 2, PrefillChunk: 50},
		"no cached prefixes": {Threads: 1, PrefillChunk: 7, NoPrefixCache: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts.KVTokens = 8 * BlockTokens
			opts.Held = &kvevents.Hub{}
			m, alone := New(weights, opts), New(weights, Options{Threads: 1, NoPrefixCache: true})
			random := rand.New(rand.NewPCG(1, 9))
			requests := make([]*workerv1.TokenRequest, 12)
			for i := range requests {
				req := &workerv1.TokenRequest{Sampling: &llmv1.Sampling{
					Seed: new(uint64(i)), MaxTokens: new(uint32(60 + 30*i)), IgnoreEos: true, RepetitionPenalty: new(float32(1.1)), Logprobs: new(uint32(2)),
				}}
				for range 1 + random.IntN(70) {
					req.Prompt = append(req.Prompt, random.Uint32N(uint32(m.VocabSize())))
				}
				requests[i] = req
			}
			got, live, next, pauses := map[uint64][]batch.Output{}, []uint64(nil), 0, 0
			follower := follow(opts.Held)
			defer follower.Close()
			for next < len(requests) || len(live) > 0 {
				for next < len(requests) && m.Join(uint64(next), requests[next]) == nil {
					live, next = append(live, uint64(next)), next+1
				}
				if len(live) == 0 {
					t.Fatal("no request joins an empty model")
				}
				outs, before := mustStep(t, m, live, nil), len(m.paused)
				if pauses += before; m.Paused(slices.Min(live)) {
					t.Fatal("the oldest sequence is paused")
				}
				for _, o := range outs {
					o.Cached, o.Logprobs = 0, cloned(o.Logprobs)
					got[o.ID] = append(got[o.ID], o)
					if o.Finish != llmv1.Finish_FINISH_UNSPECIFIED {
						m.Leave(o.ID)
						live = slices.DeleteFunc(live, func(id uint64) bool { return id == o.ID })
					}
				}
				if used, total := m.KV(); used > total {
					t.Fatalf("%d positions of %d are used", used, total)
				}
			}
			if pauses == 0 {
				t.Error("no sequence was ever paused")
			}
			for i, req := range requests {
				if err := alone.Join(uint64(i), req); err != nil {
					t.Fatal(err)
				}
				for _, o := range got[uint64(i)] {
					var want []batch.Output
					for len(want) == 0 {
						want = mustStep(t, alone, []uint64{uint64(i)}, nil)
					}
					if o.Token != want[0].Token || o.Finish != want[0].Finish || o.Logprobs.Token != want[0].Logprobs.Token {
						t.Fatalf("request %d: %+v, want %+v", i, o, want[0])
					}
				}
				alone.Leave(uint64(i))
			}
			checkEmpty(t, m)
		})
	}
}

func cloned(l *batch.Logprobs) *batch.Logprobs {
	c := *l
	return &c
}

// Sequences with the same prompt that join together read it once, and hold it once.
func TestSequencesThatJoinTogetherReadTheirPrefixOnce(t *testing.T) {
	m := New(tinyWeights(t), Options{Threads: 1, PrefillChunk: 32})
	var ids []uint64
	const streams, prompt = 8, 300
	for id := range uint64(streams) {
		ids = append(ids, id)
		if err := m.Join(id, endless(prompt, 20)); err != nil {
			t.Fatal(err)
		}
	}
	promised, _ := m.KV()
	read, tokens := 0, map[uint64][]uint32{}
	for m.sequences[streams-1].read < prompt {
		for _, o := range mustStep(t, m, ids, nil) {
			tokens[o.ID] = append(tokens[o.ID], o.Token)
		}
		for _, j := range m.jobs {
			if j.sequence.read <= prompt {
				read += j.tokens
			}
		}
	}
	// Four blocks are shared. Each sequence reads the last 44 tokens itself.
	if want := 256 + streams*44; read != want {
		t.Errorf("%d tokens were read, want %d", read, want)
	}
	if used, _ := m.KV(); promised != streams*5*BlockTokens || used != (4+streams)*BlockTokens {
		t.Errorf("%d positions were promised, %d are used", promised, used)
	}
	if m.Cached(0) != 0 || m.Cached(streams-1) != 256 {
		t.Errorf("%d and %d tokens were cached", m.Cached(0), m.Cached(streams-1))
	}
	for id := range uint64(streams) {
		for i, token := range tokens[id] {
			if token != tokens[0][i] {
				t.Errorf("sequence %d: token %d differs", id, i)
			}
		}
		m.Leave(id)
	}
	checkEmpty(t, m)
}

// A text whose vector is being computed can be paused, too: no state is added twice.
func TestPausedTextGetsTheSameVector(t *testing.T) {
	w := tinyWeights(t)
	text := random(9, 200, w.config.Vocab)
	vector := func(m *Model, ids ...uint64) []float32 {
		for {
			for _, o := range mustStep(t, m, ids, nil) {
				if o.ID == 2 {
					m.Leave(2)
					return o.Vector.GetValues()
				}
				if o.Finish != llmv1.Finish_FINISH_UNSPECIFIED {
					m.Leave(o.ID)
					ids = slices.DeleteFunc(ids, func(id uint64) bool { return id == o.ID })
				}
			}
		}
	}
	alone := New(w, Options{Threads: 1})
	if err := alone.JoinEmbed(2, text); err != nil {
		t.Fatal(err)
	}
	want := vector(alone, 2)
	m := New(w, Options{Threads: 1, KVTokens: 6 * BlockTokens, PrefillChunk: 1})
	if err := m.Join(1, endless(1, 350)); err != nil {
		t.Fatal(err)
	}
	mustStep(t, m, []uint64{1}, nil)
	if err := m.JoinEmbed(2, random(9, 200, m.VocabSize())); err != nil {
		t.Fatal(err)
	}
	paused := false
	for !paused {
		mustStep(t, m, []uint64{1, 2}, nil)
		paused = m.Paused(2)
	}
	if m.sequences[2].summed == 0 {
		t.Fatal("the text was paused before it was read")
	}
	if err := m.Join(3, endless(1, 1)); err == nil {
		t.Error("a sequence joined before a paused one")
	}
	if got := vector(m, 1, 2); !slices.Equal(got, want) {
		t.Error("the vector differs")
	}
	checkEmpty(t, m)
}

// TestStreamsShareTooLittleMemory: the streams of a loop with too little memory all complete.
func TestStreamsShareTooLittleMemory(t *testing.T) {
	var short []golden
	for _, g := range goldens(t) {
		if len(g.Answer) < 200 && len(g.Prompt) < 100 {
			short = append(short, g)
		}
	}
	m := New(tinyWeights(t), Options{KVTokens: 16 * BlockTokens, Threads: 2})
	loop := batch.New(m, batch.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	var run, streams sync.WaitGroup
	run.Go(func() { loop.Run(ctx) })
	for range 4 {
		for _, g := range short {
			streams.Go(func() { checkAnswer(t, loop, g) })
		}
	}
	streams.Wait()
	cancel()
	run.Wait()
	checkEmpty(t, m)
}
