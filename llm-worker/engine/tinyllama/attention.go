package tinyllama

import (
	"math"

	"github.com/viterin/vek/vek32"

	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/kv"
)

// remember stores the key and value of a row in one layer. both holds the keys of all heads, then
// the values of all heads.
func (l *lane) remember(layer int, r row, rotation rotation, both []float32) {
	c, at := l.weights.config, r.position%kv.BlockTokens
	key, value := both[:c.kvDim()], both[c.kvDim():]
	for head := range c.kvHeads {
		first, last := head*c.headDim, (head+1)*c.headDim
		keys, values := c.layout().Part(r.sequence.memory.Blocks[r.position/kv.BlockTokens], layer, head)
		rotation.apply(key[first:last])
		copy(keys[at*c.headDim:], key[first:last])
		for i, v := range value[first:last] {
			values[i*kv.BlockTokens+at] = v
		}
	}
}

// attend sets out to the attention of the row's query over its own position and all earlier ones,
// which remember has stored.
//
// It visits keys and values block by block from the sequence's first position, so the result
// depends on the position only, not on when the earlier positions were read.
func (l *lane) attend(layer int, r row, rotation rotation, query, out []float32) {
	c := l.weights.config
	dim, count := c.headDim, r.position+1
	blocks := r.sequence.memory.Blocks[:kv.Blocks(count)]
	layout, scores := c.layout(), l.scores[:len(blocks)*kv.BlockTokens]
	scale := float32(1 / math.Sqrt(float64(dim)))
	for head := range c.heads {
		q, kvHead := query[head*dim:(head+1)*dim], head*c.kvHeads/c.heads
		rotation.apply(q)
		vek32.MulNumber_Inplace(q, scale)
		for b, block := range blocks {
			keys, _ := layout.Part(block, layer, kvHead)
			first, last := b*kv.BlockTokens, min((b+1)*kv.BlockTokens, count)
			dots(scores[first:last], keys[:(last-first)*dim], q)
		}
		total := exponentials(scores, count)
		o := out[head*dim : (head+1)*dim]
		for b, block := range blocks {
			_, values := layout.Part(block, layer, kvHead)
			weights := scores[b*kv.BlockTokens : (b+1)*kv.BlockTokens]
			if b == 0 {
				dots(o, values, weights)
				continue
			}
			dots(l.part, values, weights)
			vek32.Add_Inplace(o, l.part)
		}
		vek32.MulNumber_Inplace(o, 1/total)
	}
}

// exponentials replaces the first count scores by exp(score - max), and the rest, up to the end of
// the last block, by 0. It returns the sum. Whole blocks keep vek from its slower code for odd
// ends.
func exponentials(scores []float32, count int) (total float32) {
	vek32.AddNumber_Inplace(scores[:count], -vek32.Max(scores[:count]))
	for i := count; i < len(scores); i++ {
		scores[i] = -math.MaxFloat32
	}
	vek32.Exp_Inplace(scores)
	return vek32.Sum(scores)
}
