package tinyllama

import (
	"github.com/viterin/vek/vek32"

	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/matrix"
)

// A linear is a matrix of weights, with a bias if b is not nil.
type linear struct {
	w *matrix.Matrix
	b []float32
}

// A product is a multiplication of rows of numbers with a linear. The workers of a lane share it.
type product struct {
	*linear
	dst, x matrix.Rows
	n      int // rows of dst and x
	// residual, unless its Data is nil, has rows to which the product is added.
	residual matrix.Rows
}

// do computes the numbers first to last of all rows.
func (p *product) do(first, last int, s *matrix.Scratch) {
	p.w.Multiply(p.dst, p.x, p.n, first, last, s)
	for i := range p.n {
		dst := p.dst.Data[i*p.dst.Stride+first : i*p.dst.Stride+last]
		if p.b != nil {
			vek32.Add_Inplace(dst, p.b[first:last])
		}
		if p.residual.Data != nil {
			vek32.Add_Inplace(p.residual.Data[i*p.residual.Stride+first:i*p.residual.Stride+last], dst)
		}
	}
}

// multiply sets n rows of dst to products with l, and adds them to the residual, if there is one.
func (l *lane) multiply(w *linear, dst, x matrix.Rows, n int, residual matrix.Rows) {
	l.product = product{w, dst, x, n, residual}
	l.pool.Run(w.w.Rows(), grain(n*w.w.Columns()), l.parts.product)
}

// grain returns the number of units that a worker claims at once, for units of a number of
// multiplications: about two microseconds of work, which outweighs the cost of a claim. It is a multiple
// of 8, the lanes of a vector.
func grain(multiplications int) int {
	const worth = 32 << 10
	return max(1, worth/max(1, multiplications)/8) * 8
}
