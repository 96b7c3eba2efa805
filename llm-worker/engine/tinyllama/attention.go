package tinyllama

import (
	"math"

	"github.com/viterin/vek/vek32"

	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/matrix"
)

// remember normalizes and rotates the heads of a row, and stores its key and value in the current
// layer.
func (l *lane) remember(i int) {
	c, r := l.weights.config, l.rows[i]
	q, wide := c.QueryDim(), c.QueryDim()+2*c.KVDim()
	query, both := l.qkv[i*wide:i*wide+q], l.qkv[i*wide+q:(i+1)*wide]
	key, value := both[:c.KVDim()], both[c.KVDim():]
	l.normalizeHeads(query, l.layer.queryNorm)
	l.normalizeHeads(key, l.layer.keyNorm)
	scale := float32(1 / math.Sqrt(float64(c.HeadDim)))
	for head := range c.Heads {
		l.rotations[i].apply(query[head*c.HeadDim : (head+1)*c.HeadDim])
	}
	vek32.MulNumber_Inplace(query, scale)
	at := r.position % BlockTokens
	for head := range c.KVHeads {
		first, last := head*c.HeadDim, (head+1)*c.HeadDim
		keys, values := c.Layout().Part(r.sequence.memory.Blocks[r.position/BlockTokens], l.number, head)
		l.rotations[i].apply(key[first:last])
		copy(keys[at*c.HeadDim:], key[first:last])
		for i, v := range value[first:last] {
			values[i*BlockTokens+at] = v
		}
	}
}

// attend sets the attention of the query heads that share one KV head, of a row over its own
// position and all earlier ones, which remember has stored.
//
// It visits keys and values block by block from the sequence's first position, so the result
// depends on the position only, not on when the earlier positions were read.
func (l *lane) attend(i, kvHead int, s *scratch) {
	c, r := l.weights.config, l.rows[i]
	group, dim, count := c.Heads/c.KVHeads, c.HeadDim, r.position+1
	q, wide := c.QueryDim(), c.QueryDim()+2*c.KVDim()
	from := kvHead * group * dim
	query := matrix.Rows{Data: l.qkv[r.index*wide+from : r.index*wide+from+group*dim], Stride: dim}
	out := matrix.Rows{Data: l.attention[i*q+from : i*q+from+group*dim], Stride: dim}
	blocks := r.sequence.memory.Blocks[:blockCount(count)]
	layout, length := c.Layout(), len(blocks)*BlockTokens
	if len(s.scores) < group*length {
		s.scores = make([]float32, 2*group*length)
	}
	scores := s.scores[:group*length]
	for b, block := range blocks {
		keys, _ := layout.Part(block, l.number, kvHead)
		n := min(BlockTokens, count-b*BlockTokens)
		matrix.Of(keys, n, dim).Multiply(matrix.Rows{Data: scores[b*BlockTokens:], Stride: length}, query, group, 0, n, &s.Scratch)
	}
	for head := range group {
		s.totals[head] = exponentials(scores[head*length:(head+1)*length], count)
	}
	for b, block := range blocks {
		_, values := layout.Part(block, l.number, kvHead)
		to := matrix.Rows{Data: s.part, Stride: dim}
		if b == 0 {
			to = out
		}
		matrix.Of(values, dim, BlockTokens).Multiply(to, matrix.Rows{Data: scores[b*BlockTokens:], Stride: length}, group, 0, dim, &s.Scratch)
		if b > 0 {
			vek32.Add_Inplace(out.Data, s.part)
		}
	}
	for head := range group {
		vek32.MulNumber_Inplace(out.Data[head*dim:(head+1)*dim], 1/s.totals[head])
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
