package tinyllama

import (
	"github.com/viterin/vek"
	"github.com/viterin/vek/vek32"
)

// A linear is a matrix of out rows and in columns, with a bias if b is not nil.
type linear struct {
	w, b    []float32
	in, out int
}

// apply sets row i of dst to the product with row i of x, for n rows that are dstStride and xStride
// numbers apart.
//
// A few rows of weights at a time are multiplied with all rows of x: the weights come from memory
// once for the whole batch, and from the CPU cache after that. Each number of dst is one dot
// product, computed in the same way whatever n is.
func (l *linear) apply(dst []float32, dstStride int, x []float32, xStride, n int) {
	block := blockRows(l.in)
	for row := 0; row < l.out; row += block {
		end := min(row+block, l.out)
		w := l.w[row*l.in : end*l.in]
		for i := range n {
			dots(dst[i*dstStride+row:i*dstStride+end], w, x[i*xStride:i*xStride+l.in])
		}
	}
	if l.b == nil {
		return
	}
	for i := range n {
		vek32.Add_Inplace(dst[i*dstStride:i*dstStride+l.out], l.b)
	}
}

// blockFloats is about how much of a matrix one call to dots covers. Measured on shapes from
// 128x128 to 1536x128, 32 KB to 90 KB gave 24 to 26 billion multiplications a second, against 14
// with a call for each row. It is also well below the 100,000 numbers from which on vek's MatMul
// starts goroutines of its own.
const blockFloats = 24 << 10

func blockRows(columns int) int { return max(1, min(64, blockFloats/columns)) }

// accelerated reports whether vek has assembly for this machine. Its portable code keeps one
// running sum in memory and is several times slower than portableDots.
var accelerated = vek.Info().Acceleration

// dots sets dst[i] to the dot product of x with row i of w, which has len(dst) rows of len(x).
func dots(dst, w, x []float32) {
	if accelerated {
		vek32.MatMul_Into(dst, w, x, len(x))
		return
	}
	portableDots(dst, w, x)
}

// portableDots keeps eight sums, so that additions do not wait for one another.
func portableDots(dst, w, x []float32) {
	for i := range dst {
		row := w[:len(x)]
		w = w[len(x):]
		var s0, s1, s2, s3, s4, s5, s6, s7 float32
		j := 0
		for ; j+8 <= len(x); j += 8 {
			a, b := row[j:j+8:j+8], x[j:j+8:j+8]
			s0 += a[0] * b[0]
			s1 += a[1] * b[1]
			s2 += a[2] * b[2]
			s3 += a[3] * b[3]
			s4 += a[4] * b[4]
			s5 += a[5] * b[5]
			s6 += a[6] * b[6]
			s7 += a[7] * b[7]
		}
		for ; j < len(x); j++ {
			s0 += row[j] * x[j]
		}
		dst[i] = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
	}
}
