package kvcache

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/whence-dev/whence/pkg/kvblock"
)

// naive is the obvious implementation of an index.
type naive struct {
	limit              int
	reported, expected map[uint64]map[workerNumber]bool
	order              []uint64 // oldest block first
}

func newNaive(limit int) *naive {
	return &naive{limit: limit, reported: map[uint64]map[workerNumber]bool{}, expected: map[uint64]map[workerNumber]bool{}}
}

func (n *naive) forgetIfUnused(name uint64) {
	if len(n.reported[name])+len(n.expected[name]) == 0 {
		delete(n.reported, name)
		delete(n.expected, name)
		n.order = slices.DeleteFunc(n.order, func(other uint64) bool { return other == name })
	}
}

func (n *naive) store(where map[uint64]map[workerNumber]bool, w workerNumber, name uint64) {
	n.order = slices.DeleteFunc(n.order, func(other uint64) bool { return other == name })
	if len(n.order) >= n.limit {
		gone := n.order[0]
		n.order = n.order[1:]
		delete(n.reported, gone)
		delete(n.expected, gone)
	}
	n.order = append(n.order, name)
	if where[name] == nil {
		where[name] = map[workerNumber]bool{}
	}
	where[name][w] = true
}

func (n *naive) remove(where map[uint64]map[workerNumber]bool, w workerNumber, name uint64) {
	delete(where[name], w)
	n.forgetIfUnused(name)
}

func (n *naive) clear(where map[uint64]map[workerNumber]bool, w workerNumber) {
	for _, name := range slices.Clone(n.order) {
		n.remove(where, w, name)
	}
}

func (n *naive) match(names []uint64, joined map[workerNumber]bool) (o overlap) {
	for w := range joined {
		held := func(i int) bool { return n.reported[names[i]][w] || n.expected[names[i]][w] }
		for o[w] < len(names) {
			if end := min(o[w]/runLength*runLength+runLength, len(names)); held(end - 1) {
				o[w] = end
				continue
			}
			for held(o[w]) {
				o[w]++
			}
			break
		}
	}
	return o
}

func (n *naive) count(where map[uint64]map[workerNumber]bool, w workerNumber) (count int) {
	for _, workers := range where {
		if workers[w] {
			count++
		}
	}
	return count
}

// TestIndexMatchesTheNaiveIndex runs random operations on both implementations.
func TestIndexMatchesTheNaiveIndex(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + random.IntN(90)
		x, want := newIndex(limit), newNaive(limit)
		joined := map[workerNumber]bool{}
		names := make([]uint64, 80)
		for i := range names {
			names[i] = random.Uint64()
			if i%3 == 0 { // clusters
				names[i] = uint64(i) + random.Uint64N(3)<<62
			}
		}
		for step := range 3000 {
			w := workerNumber(random.IntN(6))
			if !joined[w] {
				if got, ok := x.Join(); !ok || joined[got] {
					t.Fatal(got, ok)
				} else {
					joined[got] = true
				}
				continue
			}
			from := random.IntN(len(names))
			some := names[from : from+random.IntN(min(6+random.IntN(60), len(names)-from+1))]
			switch op := random.IntN(60); {
			case op < 20:
				x.Store(w, some)
				for _, name := range some {
					want.store(want.reported, w, name)
				}
			case op < 30:
				x.each(some, func(name uint64) { x.store(w, name, true) })
				for _, name := range some {
					want.store(want.expected, w, name)
				}
			case op < 40:
				x.Remove(w, some)
				for _, name := range some {
					want.remove(want.reported, w, name)
				}
			case op < 45:
				x.each(some, func(name uint64) { x.remove(w, name, true) })
				for _, name := range some {
					want.remove(want.expected, w, name)
				}
			case op < 46:
				x.Clear(w)
				want.clear(want.reported, w)
			case op < 47:
				x.Leave(w)
				want.clear(want.reported, w)
				want.clear(want.expected, w)
				delete(joined, w)
			}
			if got, want := x.Match(some), want.match(some, joined); got != want {
				t.Fatalf("seed %d, step %d: overlap %v, want %v", seed, step, got[:6], want[:6])
			}
			if x.Len() != len(want.order) {
				t.Fatalf("seed %d, step %d: %d blocks, want %d", seed, step, x.Len(), len(want.order))
			}
			if reported, expected := x.Held(w); reported != want.count(want.reported, w) || expected != want.count(want.expected, w) {
				t.Fatalf("seed %d, step %d: %d and %d blocks of worker %d, want %d and %d", seed, step, reported, expected, w, want.count(want.reported, w), want.count(want.expected, w))
			}
		}
	}
}

func TestTooManyWorkersAreRefused(t *testing.T) {
	x := newIndex(10)
	for i := range maxWorkers {
		if w, ok := x.Join(); !ok || w != workerNumber(i) {
			t.Fatal(w, ok)
		}
	}
	if w, ok := x.Join(); ok {
		t.Error(w)
	}
	x.Leave(7)
	if w, ok := x.Join(); !ok || w != 7 {
		t.Error(w, ok)
	}
}

func TestForecastExpiresUnlessItIsRenewed(t *testing.T) {
	x := newIndex(100)
	w, _ := x.Join()
	f := newForecast(x, time.Minute)
	now := time.Now()
	at := func(after time.Duration) int {
		f.Expire(now.Add(after))
		return x.Match([]uint64{1, 2, 3})[w]
	}
	f.Sent(w, []uint64{1, 2, 3}, now)
	f.Sent(w, []uint64{1, 2}, now.Add(30*time.Second))
	x.Store(w, []uint64{1})
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{59 * time.Second, 3}, {60 * time.Second, 2}, {89 * time.Second, 2}, {90 * time.Second, 1}, {time.Hour, 1}} {
		if got := at(step.after); got != step.want {
			t.Errorf("after %v: %d blocks, want %d", step.after, got, step.want)
		}
	}
	if len(f.pending) != 0 || f.blocks != 0 || len(f.sent) != 0 {
		t.Error(f.pending, f.blocks, f.sent)
	}
}

func TestForecastIsBounded(t *testing.T) {
	x := newIndex(10)
	w, _ := x.Join()
	f := newForecast(x, time.Hour)
	for i := range uint64(100) {
		f.Sent(w, []uint64{3 * i, 3*i + 1, 3*i + 2}, time.Now())
	}
	if f.blocks > 10 || len(f.pending) > 10 || x.Len() > 10 {
		t.Error(f.blocks, len(f.pending), x.Len())
	}
	if got := x.Match([]uint64{297, 298, 299}); got[w] != 3 {
		t.Error(got[w])
	}
}

// TestOthersChangeWhileAWorkerIsForgotten is for the race detector, and for slots that move
// meanwhile.
func TestOthersChangeWhileAWorkerIsForgotten(t *testing.T) {
	x := newIndex(1 << 16)
	var workers [4]workerNumber
	var blocks [4][]uint64
	random := rand.New(rand.NewPCG(1, 1))
	for i := range workers {
		workers[i], _ = x.Join()
		for range 30000 {
			blocks[i] = append(blocks[i], random.Uint64())
		}
	}
	var wg sync.WaitGroup
	for i, w := range workers {
		wg.Go(func() {
			for round := range 6 {
				x.Store(w, blocks[i][:10000])
				if o := x.Match(blocks[i][:500]); o[w] != 500 {
					t.Errorf("worker %d, round %d: %d blocks of 500", w, round, o[w])
				}
				if i%2 == 0 {
					x.Clear(w)
				} else {
					x.Remove(w, blocks[i][:10000])
				}
				if reported, _ := x.Held(w); reported != 0 {
					t.Errorf("worker %d, round %d: %d blocks", w, round, reported)
				}
			}
		})
	}
	wg.Wait()
	if x.Len() != 0 || x.table.oldest != none || x.table.newest != none {
		t.Error(x.Len())
	}
	for _, s := range x.table.slots {
		if s != (slot{}) {
			t.Fatal(s)
		}
	}
}

// full returns an index of ten million blocks of 64 workers, in prompts of 512 blocks.
var full = sync.OnceValues(func() (*index, [][]uint64) {
	const blocks = 10_000_000
	x := newIndex(blocks)
	for range maxWorkers {
		x.Join()
	}
	random := rand.New(rand.NewPCG(1, 2))
	prompts := make([][]uint64, blocks/512)
	for i := range prompts {
		prompts[i] = kvblock.Chain(nil, random.Uint64(), make([]uint32, 512*16), 16)
		for range 1 + random.IntN(4) {
			x.Store(workerNumber(random.IntN(maxWorkers)), prompts[i])
		}
	}
	return x, prompts
})

func BenchmarkMatch(b *testing.B) {
	x, prompts := full()
	ids := make([]uint32, 512*16)
	names := make([]uint64, 0, 512)
	b.Run("match", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			if o := x.Match(prompts[i*7919%len(prompts)]); slices.Max(o[:]) != 512 {
				b.Fatal(o)
			}
		}
		b.ReportMetric(float64(len(x.table.slots)*int(unsafe.Sizeof(slot{})))/float64(x.Len()), "B/block")
	})
	b.Run("hash and match", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			names = kvblock.Chain(names[:0], 0, ids, 16)
			x.Match(prompts[i*7919%len(prompts)])
		}
	})
	b.Run("store and remove", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			names := prompts[i*7919%len(prompts)]
			x.Store(63, names)
			x.Remove(63, names)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/block")
	})
	b.Run("forget a worker", func(b *testing.B) {
		for b.Loop() {
			x.Store(62, prompts[0])
			x.Clear(62)
		}
	})
}
