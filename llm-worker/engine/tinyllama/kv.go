package tinyllama

import "slices"

// blockTokens is how many positions a block of KV cache holds: enough that a call to dots for each block costs little, few
// enough that the unused rest of a sequence's last block does. A multiple of 8, for the sake of exp, see attention.go.
const blockTokens = 64

// A block holds keys and values of blockTokens positions, for all layers and KV heads: for each layer and head the keys,
// one row for each position, then the values, one column for each position. Both then feed dots as they are.
type block []float32

func (c *config) blockFloats() int { return c.layers * c.kvHeads * 2 * blockTokens * c.headDim }

// cache returns the part of b that belongs to one layer and KV head.
func (c *config) cache(b block, layer, head int) (keys, values []float32) {
	size := blockTokens * c.headDim
	part := b[(layer*c.kvHeads+head)*2*size:]
	return part[:size:size], part[size : 2*size : 2*size]
}

// blocksFor returns how many blocks hold so many positions.
func blocksFor(positions int) int { return (positions + blockTokens - 1) / blockTokens }

// A pool hands out blocks. A sequence reserves all it can come to need when it joins, and takes blocks only as it grows:
// taking what is reserved cannot fail, and memory follows use. Blocks that come back are kept for the next sequence, with
// what they hold if another one may begin like it; there are never more of them than the pool's total.
type pool struct {
	blockFloats int
	total       int // blocks
	reserved    int
	made        int
	free        []block
	kept        prefixes
}

// reserve is false if the blocks are not to be had now.
func (p *pool) reserve(blocks int) bool {
	if blocks > p.total-p.reserved {
		return false
	}
	p.reserved += blocks
	return true
}

// take returns a block of zeros. Zeros matter: attention multiplies the values of positions not yet written by 0, and what
// an earlier sequence left could be infinite.
func (p *pool) take() block {
	var b block
	switch last := len(p.free) - 1; {
	case last >= 0:
		b = p.free[last]
		p.free = p.free[:last]
	case p.made < p.total:
		p.made++
		return make(block, p.blockFloats)
	default: // those that are held are reserved, and so is this one: there is one that nobody holds
		b = p.kept.giveUp()
	}
	clear(b)
	return b
}

// spare reports whether take would give a block up only of those that nobody holds.
func (p *pool) spare() bool { return len(p.free) > 0 || p.made < p.total || p.kept.idle.Len() > 0 }

// lend gives a sequence that has reserved its blocks those that hold a beginning of its prompt, if there are any. The last
// token must be read in any case: nothing else says what follows.
func (p *pool) lend(s *sequence, c *config) {
	whole, part, n := p.kept.find(s.prompt[:len(s.prompt)-1])
	for _, shared := range whole {
		p.kept.hold(shared)
		s.blocks = append(s.blocks, shared.block)
	}
	s.shared, s.read = whole, len(whole)*blockTokens
	if n > 0 {
		p.kept.hold(part)
		if p.spare() { // else its block is the only one left for this sequence to write to
			b := p.take()
			c.copyPositions(b, part.block, n)
			s.blocks = append(s.blocks, b)
			s.read += n
		}
		p.kept.release(part)
	}
	s.cached = s.read
}

// copyPositions copies keys and values of the first n positions.
func (c *config) copyPositions(to, from block, n int) {
	for layer := range c.layers {
		for head := range c.kvHeads {
			keys, values := c.cache(from, layer, head)
			toKeys, toValues := c.cache(to, layer, head)
			copy(toKeys, keys[:n*c.headDim])
			for i := range c.headDim {
				copy(toValues[i*blockTokens:], values[i*blockTokens:i*blockTokens+n])
			}
		}
	}
}

// giveBack ends the reservation of a sequence. What it has read is kept if keep is set.
func (p *pool) giveBack(s *sequence, keep bool) {
	p.reserved -= s.reserved
	own, last := s.blocks[len(s.shared):], (*node)(nil)
	if len(s.shared) > 0 {
		last = s.shared[len(s.shared)-1]
	}
	if keep {
		own = p.kept.add(last, s.known()[len(s.shared)*blockTokens:s.read], own)
	}
	p.free = append(p.free, own...)
	for _, n := range slices.Backward(s.shared) {
		p.kept.release(n)
	}
}
