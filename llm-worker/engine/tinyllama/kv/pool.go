// Package kv is the memory of sequences: blocks of keys and values, bounded in all, and what sequences that have left had read,
// for those that begin like them.
package kv

import "slices"

// BlockTokens is how many positions a block holds: enough that a call to dots for each block costs little, few enough that the
// unused rest of a sequence's last block does. A multiple of 8, for the sake of exp in attention.
const BlockTokens = 64

// A Block holds keys and values of BlockTokens positions, for all layers and KV heads: for each layer and head the keys, one
// row for each position, then the values, one column for each position. Both then feed dots as they are.
type Block []float32

// A Layout says what the keys and values of a position are.
type Layout struct{ Layers, Heads, Dim int }

func (l Layout) floats() int { return l.Layers * l.Heads * 2 * BlockTokens * l.Dim }

// Part returns the part of b that belongs to one layer and KV head.
func (l Layout) Part(b Block, layer, head int) (keys, values []float32) {
	size := BlockTokens * l.Dim
	part := b[(layer*l.Heads+head)*2*size:]
	return part[:size:size], part[size : 2*size : 2*size]
}

// copyPositions copies keys and values of the first n positions.
func (l Layout) copyPositions(to, from Block, n int) {
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

// Blocks returns how many blocks hold so many positions.
func Blocks(positions int) int { return (positions + BlockTokens - 1) / BlockTokens }

// A Pool hands out blocks. A sequence reserves all it can come to need when it joins, and takes blocks only as it grows:
// taking what is reserved cannot fail, and memory follows use. Blocks that come back are kept for the next sequence, with
// what they hold if another one may begin like it; there are never more of them than the pool's total.
type Pool struct {
	layout   Layout
	total    int // blocks
	reserved int
	made     int
	free     []Block
	kept     prefixes
}

// New returns a pool of so many blocks, of which none is made yet.
func New(layout Layout, total int) *Pool { return &Pool{layout: layout, total: total} }

// Total returns how many blocks there can be.
func (p *Pool) Total() int { return p.total }

// Reserved returns how many of them are not to be had.
func (p *Pool) Reserved() int { return p.reserved }

// Made returns how many blocks there are, and how many of them no sequence holds.
func (p *Pool) Made() (made, idle int) { return p.made, len(p.free) + p.kept.idle.Len() }

// A Memory is the blocks of a sequence.
type Memory struct {
	Blocks []Block // so far; whole blocks of what is cached belong to others, too, and must not be written to
	Cached int     // positions that had been read by others

	reserved int     // blocks, of which these are the first
	shared   []*node // what the first of Blocks are of
}

// Join reserves memory for so many positions; ok is false if that is not to be had now. What others have read of prompt,
// but for its last token, is in it: that one must be read in any case, nothing else says what follows.
func (p *Pool) Join(positions int, prompt []uint32) (m *Memory, ok bool) {
	m = &Memory{reserved: Blocks(positions)}
	if m.reserved > p.total-p.reserved {
		return nil, false
	}
	p.reserved += m.reserved
	if len(prompt) > 1 {
		p.lend(m, prompt[:len(prompt)-1])
	}
	return m, true
}

// Grow makes room for so many positions, which must have been reserved.
func (p *Pool) Grow(m *Memory, positions int) {
	for len(m.Blocks) < Blocks(positions) {
		m.Blocks = append(m.Blocks, p.take())
	}
}

// Leave takes the memory back. It is remembered as that of the tokens read.
func (p *Pool) Leave(m *Memory, read []uint32) {
	p.reserved -= m.reserved
	own, last := m.Blocks[len(m.shared):], (*node)(nil)
	if len(m.shared) > 0 {
		last = m.shared[len(m.shared)-1]
	}
	if shared := len(m.shared) * BlockTokens; len(read) > shared {
		own = p.kept.add(last, read[shared:], own)
	}
	p.free = append(p.free, own...)
	for _, n := range slices.Backward(m.shared) {
		p.kept.release(n)
	}
}

// take returns a block of zeros. Zeros matter: attention multiplies the values of positions not yet written by 0, and what
// an earlier sequence left could be infinite.
func (p *Pool) take() Block {
	var b Block
	switch last := len(p.free) - 1; {
	case last >= 0:
		b = p.free[last]
		p.free = p.free[:last]
	case p.made < p.total:
		p.made++
		return make(Block, p.layout.floats())
	default: // those that are held are reserved, and so is this one: there is one that nobody holds
		b = p.kept.giveUp()
	}
	clear(b)
	return b
}

// spare reports whether take would find a block.
func (p *Pool) spare() bool { return len(p.free) > 0 || p.made < p.total || p.kept.idle.Len() > 0 }

// lend gives m the blocks that hold the beginning of tokens, and a copy of the one of which only a part does.
func (p *Pool) lend(m *Memory, tokens []uint32) {
	whole, part, n := p.kept.find(tokens)
	for _, shared := range whole {
		p.kept.hold(shared)
		m.Blocks = append(m.Blocks, shared.block)
	}
	m.shared, m.Cached = whole, len(whole)*BlockTokens
	if n == 0 {
		return
	}
	p.kept.hold(part)
	if p.spare() { // else its block is the only one left for this sequence to write to
		b := p.take()
		p.layout.copyPositions(b, part.block, n)
		m.Blocks = append(m.Blocks, b)
		m.Cached += n
	}
	p.kept.release(part)
}
