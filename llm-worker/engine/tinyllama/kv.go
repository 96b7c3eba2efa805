package tinyllama

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
// taking what is reserved cannot fail, and memory follows use. Blocks that come back are kept for the next sequence; there
// are never more of them than the pool's total.
type pool struct {
	blockFloats int
	total       int // blocks
	reserved    int
	free        []block
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
	if last := len(p.free) - 1; last >= 0 {
		b := p.free[last]
		p.free = p.free[:last]
		clear(b)
		return b
	}
	return make(block, p.blockFloats)
}

// release gives back a reservation, and what was taken of it.
func (p *pool) release(reserved int, taken []block) {
	p.reserved -= reserved
	p.free = append(p.free, taken...)
}
