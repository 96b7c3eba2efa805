package matrix

import "math"

const (
	tileRows  = 4 // rows of weights of a kernel
	maxInputs = 3 // rows of x of a kernel
)

// A kernel multiplies blocks of tileRows rows of weights with rows of x. Strides are in bytes.
type kernel func(dst *float32, dstStride uintptr, w *byte, wStride uintptr, scales *float32, scalesStride uintptr, x *float32, xStride uintptr, blocks uintptr)

// A machine is the code for one kind of processor.
type machine struct {
	name string
	// dots has kernels for one, two and three rows of x, by format. Without kernels for another
	// format than F32, weights are widened first; without kernels for F32, dot products are portable.
	dots      [3]*[maxInputs]kernel
	widenBF16 func(dst []float32, w []uint16, blocks int)
	widenInt8 func(dst []float32, w []int8, scales []float32, blocks int)
}

// accelerated is the code for this machine.
var accelerated = detect()

// portable is the code for every machine.
var portable = machine{name: "portable code", widenBF16: widenBF16, widenInt8: widenInt8}

// Machine names the code that multiplies, for a log.
func Machine() string { return accelerated.name }

// Portable makes all multiplications of the process portable, for tests, until the returned function
// is called. No other goroutine may multiply meanwhile.
func Portable() (restore func()) {
	before := accelerated
	accelerated = portable
	return func() { accelerated = before }
}

func widenBF16(dst []float32, w []uint16, blocks int) {
	for i, v := range w[:blocks*Block] {
		dst[i] = math.Float32frombits(uint32(v) << 16)
	}
}

func widenInt8(dst []float32, w []int8, scales []float32, blocks int) {
	for b, scale := range scales[:blocks] {
		to := dst[b*Block : (b+1)*Block]
		for i, v := range w[b*Block : (b+1)*Block] {
			to[i] = float32(v) * scale
		}
	}
}

// dot returns the product of a row with x, from a column on.
func (m *Matrix) dot(row, from int, x []float32) float32 {
	begin, end := row*m.columns+from, (row+1)*m.columns
	x = x[from:]
	switch m.format {
	case BF16:
		return dot(m.bf16[begin:end], x, func(v uint16, _ int) float32 { return math.Float32frombits(uint32(v) << 16) })
	case Int8:
		scales := m.scales[row*m.blocks():]
		return dot(m.int8[begin:end], x, func(v int8, column int) float32 { return float32(v) * scales[(from+column)/Block] })
	default:
		return dotF32(m.f32[begin:end], x)
	}
}

func dot[T uint16 | int8](w []T, x []float32, widen func(T, int) float32) float32 {
	var row [Block]float32
	sum := float32(0)
	for at := 0; at < len(w); at += Block {
		n := min(Block, len(w)-at)
		for i, v := range w[at : at+n] {
			row[i] = widen(v, at+i)
		}
		sum += dotF32(row[:n], x[at:])
	}
	return sum
}

// dotF32 keeps eight sums, so that additions do not wait for one another.
func dotF32(w, x []float32) float32 {
	x = x[:len(w)]
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	j := 0
	for ; j+8 <= len(x); j += 8 {
		a, b := w[j:j+8:j+8], x[j:j+8:j+8]
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
		s0 += w[j] * x[j]
	}
	return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
}
