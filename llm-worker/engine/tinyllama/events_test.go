package tinyllama

import (
	"context"
	"slices"
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// A follower applies the KV events of a model, as chat-service does.
type follower struct {
	*kvevents.Subscriber
	blocks map[uint64]bool
}

func follow(held *kvevents.Hub) *follower {
	return &follower{held.Subscribe(), map[uint64]bool{}}
}

// update applies the events that have not been read.
func (f *follower) update() (changes int) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		batch, err := f.Next(done)
		if err != nil {
			return changes
		}
		if batch.GetReset_() {
			clear(f.blocks)
		}
		for _, b := range batch.GetRemoved() {
			delete(f.blocks, b)
		}
		for _, b := range batch.GetStored() {
			f.blocks[b] = true
		}
		changes += len(batch.GetRemoved()) + len(batch.GetStored())
	}
}

// check compares the named blocks of tokens with those that a sequence with these tokens would find.
func (f *follower) check(t *testing.T, m *Model, tokens []uint32) {
	t.Helper()
	f.update()
	named := 0
	for _, name := range kvblock.Chain(nil, kvblock.Root(""), tokens, BlockTokens) {
		if !f.blocks[name] {
			break
		}
		named++
	}
	if found := m.pool.Find(tokens); found != named {
		t.Errorf("of %d tokens, %d blocks are cached, and events name %d", len(tokens), found, named)
	}
}

func TestEventsNameTheCachedBlocks(t *testing.T) {
	held := &kvevents.Hub{}
	m := New(tinyWeights(t), Options{Threads: 1, KVTokens: 6 * BlockTokens, Held: held})
	f := follow(held)
	defer f.Close()
	if f.update() != 0 || len(f.blocks) != 0 {
		t.Fatal("an empty cache has blocks")
	}
	// starting returns a request whose first token makes its blocks differ from those of others.
	starting := func(first uint32) *workerv1.TokenRequest {
		req := endless(150, 60)
		req.Prompt[0] = first
		return req
	}
	want := func(when string, prompts ...uint32) {
		t.Helper()
		f.update()
		blocks := map[uint64]bool{}
		for _, first := range prompts {
			req := starting(first)
			for _, name := range kvblock.Chain(nil, 0, req.GetPrompt(), BlockTokens) {
				blocks[name] = true
			}
		}
		for name := range blocks {
			if !f.blocks[name] {
				t.Errorf("%s: a block of %v is missing", when, prompts)
			}
		}
		if extra := len(f.blocks) - len(blocks); extra != 0 {
			t.Errorf("%s: there are %d further blocks", when, extra)
		}
	}
	if err := m.Join(1, starting(1)); err != nil {
		t.Fatal(err)
	}
	for m.sequences[1].read < 150 {
		mustStep(t, m, []uint64{1}, nil)
	}
	want("while the sequence runs", 1)
	m.Leave(1)
	want("after the sequence", 1)
	if err := m.Join(2, starting(2)); err != nil {
		t.Fatal(err)
	}
	for m.sequences[2].read < 150 {
		mustStep(t, m, []uint64{2}, nil)
	}
	want("with two prompts", 1, 2)
	for !m.sequences[2].finished { // fills a block of its answer
		mustStep(t, m, []uint64{2}, nil)
	}
	answered := slices.Concat(m.sequences[2].prompt, m.sequences[2].answer)
	m.Leave(2)
	f.check(t, m, answered)
	if m.pool.Find(answered) != 3 {
		t.Errorf("of %d tokens, %d blocks are cached", len(answered), m.pool.Find(answered))
	}
	generate(t, m, 3, starting(3)) // needs four blocks: evicts prompt 1
	f.check(t, m, starting(1).GetPrompt())
	f.check(t, m, starting(3).GetPrompt())
	if m.pool.Find(starting(1).GetPrompt()) != 0 {
		t.Error("prompt 1 is still cached")
	}
	checkEmpty(t, m)
	late := follow(held) // gets a snapshot
	defer late.Close()
	f.update()
	if late.update(); len(late.blocks) != len(f.blocks) {
		t.Errorf("a new subscriber sees %d blocks, not %d", len(late.blocks), len(f.blocks))
	}
}
