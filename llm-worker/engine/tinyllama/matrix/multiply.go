package matrix

import "unsafe"

// Rows are rows of float32, Stride numbers apart.
type Rows struct {
	Data   []float32
	Stride int
}

// Scratch is the working memory of one goroutine.
type Scratch struct {
	weights []float32 // widened rows
	four    [4 * maxInputs]float32
}

// maxDirect is the number of rows of x from which on weights are widened first. Measured at 896 and
// 4,864 columns: with 8 rows, widening cost up to a third, and with 64 rows it gained as much.
const maxDirect = 3 * maxInputs

// Multiply sets the numbers first to last of n rows of dst to the products of the rows first to last
// of m with n rows of x.
//
// A few rows of weights at a time are multiplied with all rows of x: the weights come from memory
// once for the whole batch.
func (m *Matrix) Multiply(dst, x Rows, n, first, last int, s *Scratch) {
	if k := accelerated.dots[m.format]; n <= maxDirect && k != nil || m.format == F32 {
		m.tiles(dst, x, n, first, last, k, s)
		return
	}
	if need := tileRows * m.columns; len(s.weights) < need {
		s.weights = make([]float32, need)
	}
	for row := first; row < last; row += tileRows {
		w := Matrix{rows: min(tileRows, last-row), columns: m.columns, f32: s.weights}
		for i := range w.rows {
			m.Row(s.weights[i*m.columns:], row+i)
		}
		w.tiles(Rows{dst.Data[row:], dst.Stride}, x, n, 0, w.rows, accelerated.dots[F32], s)
	}
}

// Of returns a matrix of float32 that are in memory already.
func Of(values []float32, rows, columns int) *Matrix {
	return &Matrix{rows: rows, columns: columns, f32: values[:rows*columns]}
}

// tiles multiplies tileRows rows of weights with up to maxInputs rows of x at a time.
func (m *Matrix) tiles(dst, x Rows, n, first, last int, k *[maxInputs]kernel, s *Scratch) {
	blocks := m.columns / Block
	if k == nil || blocks == 0 {
		m.portable(dst, x, n, first, last, 0)
		return
	}
	_ = dst.Data[(n-1)*dst.Stride+last-1]
	_ = x.Data[(n-1)*x.Stride+m.columns-1]
	size, scales := uintptr(m.columns)*m.format.size(), 4*uintptr(m.blocks())
	for row := first; row < last; row += tileRows {
		for i := 0; i < n; i += maxInputs {
			count := min(maxInputs, n-i)
			if row+tileRows <= last {
				w, scale := m.pointers(row)
				k[count-1](&dst.Data[i*dst.Stride+row], 4*uintptr(dst.Stride), w, size, scale, scales, &x.Data[i*x.Stride], 4*uintptr(x.Stride), uintptr(blocks))
				continue
			}
			for r := row; r < last; r++ { // a stride of 0 multiplies one row four times
				w, scale := m.pointers(r)
				k[count-1](&s.four[0], 4*tileRows, w, 0, scale, 0, &x.Data[i*x.Stride], 4*uintptr(x.Stride), uintptr(blocks))
				for c := range count {
					dst.Data[(i+c)*dst.Stride+r] = s.four[c*tileRows]
				}
			}
		}
	}
	if blocks*Block < m.columns {
		m.portable(dst, x, n, first, last, blocks*Block)
	}
}

// portable sets the numbers of dst to products of the columns from a column on, or adds to the
// numbers if that is not the first column.
func (m *Matrix) portable(dst, x Rows, n, first, last, from int) {
	for row := first; row < last; row++ {
		for i := range n {
			sum := m.dot(row, from, x.Data[i*x.Stride:i*x.Stride+m.columns])
			if from > 0 {
				sum += dst.Data[i*dst.Stride+row]
			}
			dst.Data[i*dst.Stride+row] = sum
		}
	}
}

// pointers returns the addresses of a row and of its scales.
func (m *Matrix) pointers(row int) (w *byte, scales *float32) {
	at := row * m.columns
	switch m.format {
	case BF16:
		return (*byte)(unsafe.Pointer(&m.bf16[at])), nil
	case Int8:
		return (*byte)(unsafe.Pointer(&m.int8[at])), &m.scales[row*m.blocks()]
	default:
		return (*byte)(unsafe.Pointer(&m.f32[at])), nil
	}
}

// size returns the bytes of a weight.
func (f Format) size() uintptr { return [...]uintptr{4, 2, 1}[f] }
