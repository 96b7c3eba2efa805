// Package matrix holds weights in memory as float32, bfloat16 or int8, and multiplies them with
// rows of float32.
//
// Every result is one dot product, computed by the same operations in the same order whatever else
// is computed beside it: the number of rows of the other operand, and the range of rows of weights,
// change no bit. Weights are converted to float32 without loss (int8: times the scale of their
// block, rounded to float32), and products are added in float32. AVX2 with FMA keeps eight sums of
// fused operations for a result, NEON four; the portable code rounds each product first. So two
// kinds of machines differ by rounding. The tests bound the error of a result, against float64, by
// 1e-6 of the sum of the absolute products, on each.
package matrix

import (
	"fmt"
	"math"
)

// A Format says how weights are kept.
type Format uint8

const (
	// F32 is float32.
	F32 Format = iota
	// BF16 is bfloat16, the upper half of float32.
	BF16
	// Int8 keeps blocks of 32 weights of a row as int8 with one float32 scale, which is a 127th of
	// the block's largest weight: 9 bits each. A weight is off by at most half of that scale. Q8_0
	// of GGUF has the same form, and is kept without loss.
	Int8
)

func (f Format) String() string { return [...]string{"f32", "bf16", "int8"}[f] }

// Block is the number of weights with one scale.
const Block = 32

// A Matrix is immutable once all of its rows are set, and safe for concurrent use then.
type Matrix struct {
	rows, columns int
	format        Format
	f32           []float32 // in row order; one of the three is not nil
	bf16          []uint16
	int8          []int8
	scales        []float32 // for each block of each row
}

// New returns a matrix of zeros.
func New(format Format, rows, columns int) *Matrix {
	m := &Matrix{rows: rows, columns: columns, format: format}
	switch n := rows * columns; format {
	case F32:
		m.f32 = make([]float32, n)
	case BF16:
		m.bf16 = make([]uint16, n)
	case Int8:
		m.int8, m.scales = make([]int8, n), make([]float32, rows*m.blocks())
	default:
		panic(fmt.Sprintf("matrix: format %d", format))
	}
	return m
}

// Rows returns the number of results for one row of the other operand.
func (m *Matrix) Rows() int { return m.rows }

// Columns returns the length of a row.
func (m *Matrix) Columns() int { return m.columns }

// blocks returns the number of blocks of a row; the last may have fewer than Block weights.
func (m *Matrix) blocks() int { return (m.columns + Block - 1) / Block }

// Set sets whole rows, from a row on.
func (m *Matrix) Set(row int, values []float32) {
	switch at := row * m.columns; m.format {
	case F32:
		copy(m.f32[at:], values)
	case BF16:
		for i, v := range values {
			m.bf16[at+i] = toBF16(v)
		}
	case Int8:
		for ; len(values) > 0; row++ {
			q, scales := m.int8[row*m.columns:(row+1)*m.columns], m.scales[row*m.blocks():]
			for b := 0; b < m.columns; b += Block {
				end := min(b+Block, m.columns)
				scales[b/Block] = quantize(q[b:end], values[b:end])
			}
			values = values[m.columns:]
		}
	}
}

// toBF16 rounds to the nearest number of the format, ties to even. Numbers of the format stay as
// they are.
func toBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v { // the rounding could make an infinity of it
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// quantize sets q to the values in units of a scale. The scale of values that are not finite is NaN,
// so that every result is, too.
func quantize(q []int8, values []float32) (scale float32) {
	largest := uint32(0) // bits of the largest absolute value; those of NaN and infinities are larger still
	for _, v := range values {
		largest = max(largest, math.Float32bits(v)&^(1<<31))
	}
	scale = math.Float32frombits(largest) / 127
	inverse := 1 / scale
	switch {
	case largest >= 0x7f800000:
		clear(q)
		return float32(math.NaN())
	case math.IsInf(float64(inverse), 0): // values so small that their scale is 0, or nearly
		clear(q)
		return 0
	}
	const integer = 3 << 22 // float32 has no fractions here, so the addition rounds, to even
	for i, v := range values {
		q[i] = int8(math.Float32bits(float32(v*inverse) + integer)) //nolint:gosec // the low bits are the number
	}
	return scale
}

// Row sets dst to a row, as float32.
func (m *Matrix) Row(dst []float32, row int) {
	whole, at := m.columns/Block, row*m.columns
	dst = dst[:m.columns]
	switch m.format {
	case F32:
		copy(dst, m.f32[at:])
	case BF16:
		if whole > 0 {
			accelerated.widenBF16(dst, m.bf16[at:], whole)
		}
		for i := whole * Block; i < len(dst); i++ {
			dst[i] = math.Float32frombits(uint32(m.bf16[at+i]) << 16)
		}
	case Int8:
		scales := m.scales[row*m.blocks():]
		if whole > 0 {
			accelerated.widenInt8(dst, m.int8[at:], scales, whole)
		}
		for i := whole * Block; i < len(dst); i++ {
			dst[i] = float32(m.int8[at+i]) * scales[whole]
		}
	}
}
