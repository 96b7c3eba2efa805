package tinyllama

import (
	"math"

	"github.com/viterin/vek/vek32"
)

// forward takes the tile's rows through all layers. It stores the keys and values of all rows in
// the sequences' blocks, and leaves in l.rows and l.x the rows that end a job. The other rows need
// only keys and values, so they drop out of the last layer once it has them. The rows of one
// sequence are in order.
func (l *lane) forward() {
	c := l.weights.config
	d, q, wide := c.hidden, c.queryDim(), c.queryDim()+2*c.kvDim()
	for i, r := range l.rows {
		copy(l.x[i*d:(i+1)*d], l.weights.embedding[int(r.token)*d:])
		l.rotations[i].turnTo(r.position, c.frequencies)
	}
	for number := range l.weights.layers {
		layer := &l.weights.layers[number]

		l.normalizeAll(l.h, l.x, layer.attentionNorm, len(l.rows))
		layer.qkv.apply(l.qkv, wide, l.h, d, len(l.rows))
		last, kept := number == len(l.weights.layers)-1, 0
		for i, r := range l.rows {
			qkv := l.qkv[i*wide : (i+1)*wide]
			l.normalizeHeads(qkv[:q], layer.queryNorm)
			l.normalizeHeads(qkv[q:q+c.kvDim()], layer.keyNorm)
			l.remember(number, r, l.rotations[i], qkv[q:])
			if last && !r.last {
				continue
			}
			l.attend(number, r, l.rotations[i], qkv[:q], l.attention[kept*q:(kept+1)*q])
			copy(l.x[kept*d:(kept+1)*d], l.x[i*d:(i+1)*d])
			l.rows[kept] = r
			kept++
		}
		l.rows = l.rows[:kept]
		if kept == 0 {
			return
		}
		layer.output.apply(l.h, d, l.attention, q, kept)
		vek32.Add_Inplace(l.x[:kept*d], l.h[:kept*d])

		l.normalizeAll(l.h, l.x, layer.mlpNorm, kept)
		layer.gateUp.apply(l.gateUp, 2*c.feedForward, l.h, d, kept)
		for i := range kept {
			l.activate(l.gateUp[2*i*c.feedForward : 2*(i+1)*c.feedForward])
		}
		layer.down.apply(l.h, d, l.gateUp, 2*c.feedForward, kept)
		vek32.Add_Inplace(l.x[:kept*d], l.h[:kept*d])
	}
}

// normalizeAll sets n rows of dst to the normalized rows of x.
func (l *lane) normalizeAll(dst, x, weight []float32, n int) {
	d := l.weights.config.hidden
	for i := range n {
		normalize(dst[i*d:(i+1)*d], x[i*d:(i+1)*d], weight, l.weights.config.normEpsilon)
	}
}

// normalizeHeads normalizes each head in place, if the model has a weight for that.
func (l *lane) normalizeHeads(heads, weight []float32) {
	if weight == nil {
		return
	}
	for dim := len(weight); len(heads) > 0; heads = heads[dim:] {
		normalize(heads[:dim], heads[:dim], weight, l.weights.config.normEpsilon)
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

// activate sets the gate half of a row to silu(gate) * up.
func (l *lane) activate(row []float32) {
	gate, up, sigma := row[:len(l.sigmas)], row[len(l.sigmas):], l.sigmas
	copy(sigma, gate)
	vek32.MulNumber_Inplace(sigma, -1)
	vek32.Exp_Inplace(sigma)
	vek32.AddNumber_Inplace(sigma, 1)
	vek32.Div_Inplace(gate, sigma)
	vek32.Mul_Inplace(gate, up)
}

// multiplications returns the approximate number of multiplications per token.
func (c *config) multiplications() int {
	attention := c.hidden * (2*c.queryDim() + 2*c.kvDim())
	return c.layers*(attention+3*c.hidden*c.feedForward) + c.vocab*c.hidden
}
