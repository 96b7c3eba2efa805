package tinyllama

// BlockTokens is the number of positions per block. It is large enough that one call to dots per
// block costs little, and small enough that the unused rest of a sequence's last block costs little
// memory. It is a multiple of 8 for exp in attention.
const BlockTokens = 64

// A kvBlock holds keys and values of BlockTokens positions, for all layers and KV heads: for each
// layer and head first the keys, one row per position, then the values, one column per position.
// Both layouts are the ones that dots reads.
type kvBlock []float32

// A kvLayout is the shape of the keys and values of one position.
type kvLayout struct{ Layers, Heads, Dim int }

func (l kvLayout) floats() int { return l.Layers * l.Heads * 2 * BlockTokens * l.Dim }

// Part returns the part of b that belongs to one layer and KV head.
func (l kvLayout) Part(b kvBlock, layer, head int) (keys, values []float32) {
	size := BlockTokens * l.Dim
	part := b[(layer*l.Heads+head)*2*size:]
	return part[:size:size], part[size : 2*size : 2*size]
}

// copyPositions copies the keys and values of the first n positions.
func (l kvLayout) copyPositions(to, from kvBlock, n int) {
	for layer := range l.Layers {
		for head := range l.Heads {
			keys, values := l.Part(from, layer, head)
			toKeys, toValues := l.Part(to, layer, head)
			copy(toKeys, keys[:n*l.Dim])
			for i := range l.Dim {
				copy(toValues[i*BlockTokens:], values[i*BlockTokens:i*BlockTokens+n])
			}
		}
	}
}

// blockCount returns the number of blocks for a number of positions.
func blockCount(positions int) int { return (positions + BlockTokens - 1) / BlockTokens }

// A kvPool is the memory of the KV cache. It hands out blocks, at most total. A sequence that joins
// is promised the blocks of its known tokens, and takes further blocks as it grows, if there are
// any. The caller decides which sequence must leave if there are none. A block that no sequence
// holds stays cached until its memory is needed.
//
//	total = held + cached + free + not yet allocated, and promised <= total - held
type kvPool struct {
	layout   kvLayout
	total    int // blocks
	promised int // blocks that memories will take without asking for room
	made     int // allocated blocks
	free     []kvBlock
	cache    prefixes
}

// newKVPool returns a pool of at most total blocks. It allocates none of them.
func newKVPool(layout kvLayout, total int) *kvPool { return &kvPool{layout: layout, total: total} }

// Total returns the maximum number of blocks.
func (p *kvPool) Total() int { return p.total }

// Used returns the number of blocks that sequences hold or are promised. A shared block counts
// once.
func (p *kvPool) Used() int { return p.made - len(p.free) - p.cache.idle.Len() + p.promised }

// Cached returns the number of positions that a new sequence could find, including those of blocks
// that sequences hold.
func (p *kvPool) Cached() int { return p.cache.positions }

// Made returns the number of allocated blocks, and how many of them no sequence holds.
func (p *kvPool) Made() (made, idle int) { return p.made, len(p.free) + p.cache.idle.Len() }

// Changes returns the names of the whole blocks that the pool has evicted and stored since the last
// call. A block that was stored and evicted in between appears in neither.
func (p *kvPool) Changes() (removed, stored []uint64) { return p.cache.changes() }

// Find returns the number of cached whole blocks at the beginning of tokens.
func (p *kvPool) Find(tokens []uint32) int {
	whole, _, _ := p.cache.find(tokens)
	return len(whole)
}

// A blockTable is the block table of a sequence.
type blockTable struct {
	Blocks []kvBlock // so far; the shared ones must not be written to
	Cached int       // positions that other sequences had read when this one joined

	promised int           // further blocks that this memory takes without asking for room
	shared   []*prefixNode // the nodes of the first of Blocks
}

// Shared returns the number of blocks that other sequences may read, too.
func (m *blockTable) Shared() int { return len(m.shared) }

// Join promises memory for a number of positions; ok is false if that would leave less than spare
// blocks of room. The memory contains the cached prefix of known, but never known's last token:
// that token must be read, because only reading it yields the next token.
func (p *kvPool) Join(positions int, known []uint32, spare int) (m *blockTable, ok bool) {
	m = &blockTable{}
	var part *prefixNode
	n := 0
	if len(known) > 1 {
		m.shared, part, n = p.cache.find(known[:len(known)-1])
	}
	for _, shared := range m.shared {
		p.cache.hold(shared)
		m.Blocks = append(m.Blocks, shared.block)
	}
	m.Cached, m.promised = len(m.shared)*BlockTokens, blockCount(positions)-len(m.shared)
	if m.promised+spare > p.total-p.Used() {
		p.cache.releaseAll(m.shared)
		return nil, false
	}
	p.promised += m.promised
	if n > 0 {
		p.lend(m, part, n)
	}
	return m, true
}

// lend gives m a copy of the first n positions of a block that matches only in part.
func (p *kvPool) lend(m *blockTable, part *prefixNode, n int) {
	p.cache.hold(part)
	if p.made < p.total || len(p.free)+p.cache.idle.Len() > 0 { // otherwise part's block is the only one left for m to write to
		p.take(m)
		p.layout.copyPositions(m.Blocks[len(m.Blocks)-1], part.block, n)
		m.Cached += n
	}
	p.cache.release(part)
}

// Grow makes room for a number of positions. It reports false, and changes nothing, if there is no
// room.
func (p *kvPool) Grow(m *blockTable, positions int) bool {
	more := blockCount(positions) - len(m.Blocks)
	if more-m.promised > p.total-p.Used() {
		return false
	}
	for range more {
		p.take(m)
	}
	return true
}

// Adopt appends to m the cached block that continues m with tokens, and reports whether there is
// one. All blocks of m must be shared.
func (p *kvPool) Adopt(m *blockTable, tokens []uint32) bool {
	next := p.cache.child(m.last(), tokens)
	if next == nil || next.idle != nil && m.promised == 0 && p.Used() == p.total {
		return false
	}
	p.cache.hold(next)
	m.shared, m.Blocks = append(m.shared, next), append(m.Blocks, next.block)
	p.fulfil(m)
	return true
}

// Share caches the first block of m that is not shared. The block holds tokens and is never written
// to again. If another sequence has stored the same tokens, m gets the other
// sequence's block, which has the same content.
func (p *kvPool) Share(m *blockTable, tokens []uint32) {
	at := len(m.shared)
	n, spare := p.cache.add(m.last(), tokens, m.Blocks[at])
	p.cache.hold(n)
	p.free = append(p.free, spare...)
	m.shared, m.Blocks[at] = append(m.shared, n), n.block
}

// Leave takes the memory back. It caches the last block as the end of read, a prefix that begins
// with the shared blocks.
func (p *kvPool) Leave(m *blockTable, read []uint32) {
	p.promised -= m.promised
	own := m.Blocks[len(m.shared):]
	if shared := len(m.shared) * BlockTokens; len(read) > shared && len(own) > 0 {
		n, spare := p.cache.add(m.last(), read[shared:min(len(read), shared+BlockTokens)], own[0])
		p.cache.touch(n)
		p.free = append(p.free, spare...)
		own = own[1:]
	}
	p.free = append(p.free, own...)
	p.cache.releaseAll(m.shared)
}

// last returns the last shared node, or nil.
func (m *blockTable) last() *prefixNode {
	if len(m.shared) == 0 {
		return nil
	}
	return m.shared[len(m.shared)-1]
}

// take appends a block of zeros to m. There must be room. The zeros matter: attention multiplies
// the values of unwritten positions by 0, and old values could be infinite.
func (p *kvPool) take(m *blockTable) {
	var b kvBlock
	switch last := len(p.free) - 1; {
	case last >= 0:
		b = p.free[last]
		p.free = p.free[:last]
		clear(b)
	case p.made < p.total:
		p.made++
		b = make(kvBlock, p.layout.floats())
	default:
		b = p.cache.evict()
		clear(b)
	}
	m.Blocks = append(m.Blocks, b)
	p.fulfil(m)
}

// fulfil counts a block that m has got as promised.
func (p *kvPool) fulfil(m *blockTable) {
	if m.promised > 0 {
		m.promised--
		p.promised--
	}
}
