package tokenizer

// A bpeMerger joins the symbols of one word, lowest rank first and leftmost first among equal
// ranks, in O(n log n) time: a heap holds every pair that may be joined, and a linked list holds
// the remaining symbols.
//
// It is scratch memory for bpe.Encode, to be reused. The zero bpeMerger is ready to use. Only one
// goroutine may use it.
type bpeMerger struct {
	symbols []bpeSymbol
	heap    []bpePair
}

// A bpeSymbol is a token of the word so far. After a symbol was joined to its left neighbour, its id
// is noToken.
type bpeSymbol struct {
	id         uint32
	prev, next int32 // -1 at the ends
}

// A bpePair is a pair that may be joined: the symbol at pos and the next symbol would become id.
// It is stale after one of the two has changed.
type bpePair struct {
	key uint64 // rank, then pos: the order of the heap
	id  uint32
}

func (c bpePair) pos() int32 { return int32(uint32(c.key)) }

// Size returns the capacity in symbols and pairs.
func (mg *bpeMerger) Size() int { return cap(mg.symbols) + cap(mg.heap) }

func (mg *bpeMerger) reset() {
	mg.symbols = mg.symbols[:0]
	mg.heap = mg.heap[:0]
}

func (mg *bpeMerger) push(id uint32) {
	n := int32(len(mg.symbols))
	if n > 0 {
		mg.symbols[n-1].next = n
	}
	mg.symbols = append(mg.symbols, bpeSymbol{id: id, prev: n - 1, next: -1})
}

// merge appends the merged word to ids.
func (mg *bpeMerger) merge(ids []uint32, merges map[uint64]bpeMerge) []uint32 {
	syms := mg.symbols
	for i := 0; i+1 < len(syms); i++ {
		if m, ok := merges[pair(syms[i].id, syms[i+1].id)]; ok {
			mg.heap = append(mg.heap, bpePair{uint64(m.rank)<<32 | uint64(i), m.id})
		}
	}
	for i := len(mg.heap)/2 - 1; i >= 0; i-- {
		mg.sink(i)
	}
	for len(mg.heap) > 0 {
		top := mg.pop()
		at := top.pos()
		left := &syms[at]
		if left.id == noToken || left.next < 0 {
			continue
		}
		right := &syms[left.next]
		if m, ok := merges[pair(left.id, right.id)]; !ok || m.id != top.id {
			continue
		}
		left.id, right.id = top.id, noToken
		left.next = right.next
		if left.next >= 0 {
			syms[left.next].prev = at
			mg.consider(at, left.next, merges)
		}
		if left.prev >= 0 {
			mg.consider(left.prev, at, merges)
		}
	}
	if len(syms) > 0 { // the first symbol is never joined to a left neighbour
		for i := int32(0); i >= 0; i = syms[i].next {
			ids = append(ids, syms[i].id)
		}
	}
	return ids
}

func (mg *bpeMerger) consider(left, right int32, merges map[uint64]bpeMerge) {
	m, ok := merges[pair(mg.symbols[left].id, mg.symbols[right].id)]
	if !ok {
		return
	}
	mg.heap = append(mg.heap, bpePair{uint64(m.rank)<<32 | uint64(left), m.id})
	for i := len(mg.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if mg.heap[up].key <= mg.heap[i].key {
			break
		}
		mg.heap[up], mg.heap[i] = mg.heap[i], mg.heap[up]
		i = up
	}
}

func (mg *bpeMerger) pop() bpePair {
	top := mg.heap[0]
	last := len(mg.heap) - 1
	mg.heap[0] = mg.heap[last]
	mg.heap = mg.heap[:last]
	mg.sink(0)
	return top
}

func (mg *bpeMerger) sink(i int) {
	h := mg.heap
	for {
		down := 2*i + 1
		if down >= len(h) {
			return
		}
		if down+1 < len(h) && h[down+1].key < h[down].key {
			down++
		}
		if h[i].key <= h[down].key {
			return
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
}
