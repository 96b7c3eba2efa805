// Package kv is the KV cache: a bounded pool of blocks of keys and values, and the prefixes that
// departed sequences have read, for sequences with the same prefix.
package kv

import "slices"

// BlockTokens is the number of positions per block. It is large enough that one call to dots per
// block costs little, and small enough that the unused rest of a sequence's last block costs little
// memory. It is a multiple of 8 for exp in attention.
const BlockTokens = 64

// A Block holds keys and values of BlockTokens positions, for all layers and KV heads: for each
// layer and head first the keys, one row per position, then the values, one column per position.
// Both layouts are the ones that dots reads.
type Block []float32

// A Layout is the shape of the keys and values of one position.
type Layout struct{ Layers, Heads, Dim int }

func (l Layout) floats() int { return l.Layers * l.Heads * 2 * BlockTokens * l.Dim }

// Part returns the part of b that belongs to one layer and KV head.
func (l Layout) Part(b Block, layer, head int) (keys, values []float32) {
	size := BlockTokens * l.Dim
	part := b[(layer*l.Heads+head)*2*size:]
	return part[:size:size], part[size : 2*size : 2*size]
}

// copyPositions copies the keys and values of the first n positions.
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

// Blocks returns the number of blocks for a number of positions.
func Blocks(positions int) int { return (positions + BlockTokens - 1) / BlockTokens }

// A Pool hands out blocks. A sequence reserves all the blocks that it may need when it joins, and
// takes them as it grows: taking a reserved block cannot fail, and memory follows use. Returned
// blocks are kept for the next sequence, with their content if another sequence may have the same
// prefix. The pool never has more than total blocks.
type Pool struct {
	layout   Layout
	total    int // blocks
	reserved int
	made     int
	free     []Block
	kept     prefixes
}

// New returns a pool of at most total blocks. It allocates none of them.
func New(layout Layout, total int) *Pool { return &Pool{layout: layout, total: total} }

// Total returns the maximum number of blocks.
func (p *Pool) Total() int { return p.total }

// Reserved returns the number of reserved blocks.
func (p *Pool) Reserved() int { return p.reserved }

// Made returns the number of allocated blocks, and how many of them no sequence holds.
func (p *Pool) Made() (made, idle int) { return p.made, len(p.free) + p.kept.idle.Len() }

// A Memory holds the blocks of a sequence.
type Memory struct {
	Blocks []Block // so far; whole cached blocks are shared with other sequences and must not be written to
	Cached int     // positions that other sequences had read

	reserved int     // number of reserved blocks, including Blocks
	shared   []*node // the nodes of the first of Blocks
}

// Join reserves memory for a number of positions; ok is false if there is no room now. The memory
// contains the cached prefix of prompt, but never prompt's last token: that token must be read,
// because only reading it yields the next token.
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

// Grow makes room for a number of positions, which must have been reserved.
func (p *Pool) Grow(m *Memory, positions int) {
	for len(m.Blocks) < Blocks(positions) {
		m.Blocks = append(m.Blocks, p.take())
	}
}

// Leave takes the memory back and caches it as the prefix read.
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

// take returns a block of zeros. The zeros matter: attention multiplies the values of unwritten
// positions by 0, and old values could be infinite.
func (p *Pool) take() Block {
	var b Block
	switch last := len(p.free) - 1; {
	case last >= 0:
		b = p.free[last]
		p.free = p.free[:last]
	case p.made < p.total:
		p.made++
		return make(Block, p.layout.floats())
	default: // held blocks are reserved, and so is this one; so there is a block that no sequence holds
		b = p.kept.giveUp()
	}
	clear(b)
	return b
}

// spare reports whether take would find a block.
func (p *Pool) spare() bool { return len(p.free) > 0 || p.made < p.total || p.kept.idle.Len() > 0 }

// lend gives m the blocks of the longest cached prefix of tokens, and a copy of the block that
// matches only partly.
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
	if p.spare() { // otherwise its block is the only one left for this sequence to write to
		b := p.take()
		p.layout.copyPositions(b, part.block, n)
		m.Blocks = append(m.Blocks, b)
		m.Cached += n
	}
	p.kept.release(part)
}
