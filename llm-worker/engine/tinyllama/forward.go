package tinyllama

import (
	"math"

	"github.com/viterin/vek/vek32"

	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/matrix"
)

// forward takes the tile's rows through all layers. It stores the keys and values of all rows in
// the sequences' blocks, and leaves in l.rows and l.x the rows whose last states are needed. The other rows need
// only keys and values, so they drop out of the last layer once it has them. If all jobs of the tile
// are abandoned, forward returns early and leaves no rows.
func (l *lane) forward() {
	c := l.weights.config
	d, q, wide := c.Hidden, c.QueryDim(), c.QueryDim()+2*c.KVDim()
	x, h := matrix.Rows{Data: l.x, Stride: d}, matrix.Rows{Data: l.h, Stride: d}
	l.pool.Run(len(l.rows), 4, l.parts.embed)
	for l.number = range l.weights.layers {
		l.layer = &l.weights.layers[l.number]
		if l.abandoned.interrupted(l.rows) {
			l.rows = l.rows[:0]
			return
		}

		l.normalizeAll(l.x, l.layer.attentionNorm, len(l.rows))
		l.multiply(&l.layer.qkv, matrix.Rows{Data: l.qkv, Stride: wide}, h, len(l.rows), matrix.Rows{})
		l.pool.Run(len(l.rows), 4, l.parts.remember)
		if l.number == len(l.weights.layers)-1 {
			l.drop()
		}
		kept := len(l.rows)
		if kept == 0 {
			return
		}
		l.pool.Run(kept*c.KVHeads, 1, l.parts.attend)
		l.multiply(&l.layer.output, h, matrix.Rows{Data: l.attention, Stride: q}, kept, x)

		l.normalizeAll(l.x, l.layer.mlpNorm, kept)
		l.product = product{&l.layer.gateUp, matrix.Rows{Data: l.gateUp, Stride: 2 * c.FeedForward}, h, kept, matrix.Rows{}}
		l.pool.Run(c.FeedForward, grain(2*kept*d), l.parts.gateUp)
		l.multiply(&l.layer.down, h, matrix.Rows{Data: l.gateUp, Stride: 2 * c.FeedForward}, kept, x)
	}
}

// drop drops the rows whose last states are not needed.
func (l *lane) drop() {
	d, kept := l.weights.config.Hidden, 0
	for i, r := range l.rows {
		if r.last {
			copy(l.x[kept*d:(kept+1)*d], l.x[i*d:(i+1)*d])
			l.rows[kept] = r
			kept++
		}
	}
	l.rows = l.rows[:kept]
}

// parts are the parts of a step that the workers share. They are made once: a closure for each Run
// would be garbage.
type parts struct {
	embed, normalize, remember, attend, product, gateUp, choose func(worker, first, last int)
}

func (l *lane) newParts() parts {
	c := l.weights.config
	return parts{
		embed: func(_, first, last int) {
			for i := first; i < last; i++ {
				l.rows[i].index = i
				l.weights.embedding.Row(l.x[i*c.Hidden:(i+1)*c.Hidden], int(l.rows[i].token))
				l.rotations[i].turnTo(l.rows[i].position, c.Frequencies)
			}
		},
		normalize: func(_, first, last int) {
			for i := first; i < last; i++ {
				normalize(l.h[i*c.Hidden:(i+1)*c.Hidden], l.states[i*c.Hidden:(i+1)*c.Hidden], l.norm, c.NormEpsilon)
			}
		},
		remember: func(_, first, last int) {
			for i := first; i < last; i++ {
				l.remember(i)
			}
		},
		attend: func(worker, first, last int) {
			for i := first; i < last; i++ {
				l.attend(i/c.KVHeads, i%c.KVHeads, &l.scratch[worker])
			}
		},
		product: func(worker, first, last int) { l.product.do(first, last, &l.scratch[worker].Scratch) },
		gateUp: func(worker, first, last int) {
			s, p := &l.scratch[worker], &l.product
			p.do(first, last, &s.Scratch)
			p.do(c.FeedForward+first, c.FeedForward+last, &s.Scratch)
			for i := range p.n {
				row := p.dst.Data[i*p.dst.Stride : (i+1)*p.dst.Stride]
				activate(row[first:last], row[c.FeedForward+first:c.FeedForward+last], s.sigmas)
			}
		},
		choose: func(_, first, last int) {
			for i := first; i < last; i++ {
				row, logits := &l.choosing[i], l.logits[i*c.Vocab:(i+1)*c.Vocab]
				if s := row.sequence; s.scores(row.position) {
					s.scored.score(row.position, s.prompt[row.position+1], logits)
				} else {
					row.job.choose(logits)
				}
			}
		},
	}
}

// normalizeAll sets n rows of l.h to the normalized rows of states.
func (l *lane) normalizeAll(states, weight []float32, n int) {
	l.states, l.norm = states, weight
	l.pool.Run(n, 4, l.parts.normalize)
}

// normalizeHeads normalizes each head in place, if the model has a weight for that.
func (l *lane) normalizeHeads(heads, weight []float32) {
	if weight == nil {
		return
	}
	for dim := len(weight); len(heads) > 0; heads = heads[dim:] {
		normalize(heads[:dim], heads[:dim], weight, l.weights.config.NormEpsilon)
	}
}

// normalize computes RMSNorm.
func normalize(dst, x, weight []float32, epsilon float32) {
	mean := vek32.Dot(x, x) / float32(len(x))
	scale := 1 / float32(math.Sqrt(float64(mean+epsilon)))
	for i, v := range x {
		dst[i] = v * scale * weight[i]
	}
}

// activate sets gate to silu(gate) * up. A range of a row begins at a multiple of 8, and its odd end
// is computed by itself: so a number has the same bits in any range.
func activate(gate, up, sigma []float32) {
	sigma = sigma[:len(gate)]
	copy(sigma, gate)
	vek32.MulNumber_Inplace(sigma, -1)
	even := len(gate) &^ 7
	if even > 0 {
		vek32.Exp_Inplace(sigma[:even])
	}
	if even < len(gate) {
		vek32.Exp_Inplace(sigma[even:])
	}
	for i, g := range gate { // vek's division rounds differently at odd ends
		gate[i] = g / (1 + sigma[i]) * up[i]
	}
}
