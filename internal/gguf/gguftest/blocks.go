package gguftest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// Kinds of tensors, by ggml's numbers.
const (
	F32 = 0
	Q80 = 8
	Q4K = 12
	Q6K = 14
)

// Random returns the data of n random numbers around 0 in a format, and the numbers. They are
// computed as dequantize_row of ggml does, one number at a time.
func Random(r *rand.Rand, kind uint32, n int, scale float32) (data []byte, values []float32) {
	for len(values) < n {
		block, some := randomBlock(r, kind, scale)
		data, values = append(data, block...), append(values, some...)
	}
	return data, values
}

func randomBlock(r *rand.Rand, kind uint32, scale float32) (block []byte, values []float32) {
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	switch kind {
	case F32:
		v := float32(r.NormFloat64()) * scale
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)), []float32{v}
	case Q80:
		half, d := powerOfTwo(scale / 64)
		quants := random(32)
		for _, q := range quants {
			values = append(values, float32(int8(q))*d) //nolint:gosec // the byte is signed
		}
		return append(half, quants...), values
	case Q4K:
		half, d := powerOfTwo(scale / 256)
		scales, quants := random(12), random(128)
		for i := range 256 {
			// Eight sub-blocks of 32 numbers; two of them share 32 bytes. Their scales and minima have six bits.
			sub := i / 32
			q := float32(quants[sub/2*32+i%32] >> (4 * (sub % 2)) & 15)
			s, m := scales[sub%4]&63, scales[sub%4+4]&63
			if sub >= 4 {
				s, m = scales[sub+4]&15|scales[sub-4]>>6<<4, scales[sub+4]>>4|scales[sub]>>6<<4
			}
			values = append(values, float32(d*float32(s)*q)-8*d*float32(m))
		}
		_, eight := half, 8*d
		minimum, _ := powerOfTwo(eight)
		return append(append(append(half, minimum...), scales...), quants...), values
	default: // Q6K
		half, d := powerOfTwo(scale / 512)
		low, high, scales := random(128), random(64), random(16)
		for i := range 256 {
			// Two parts of 128 numbers; in each the four quarters share bytes.
			part, quarter, at := i/128, i%128/32, i%32
			q := low[part*64+quarter%2*32+at] >> (4 * (quarter / 2)) & 15
			q |= high[part*32+at] >> (2 * quarter) & 3 << 4
			values = append(values, d*float32(int8(scales[i/16]))*float32(int(q)-32)) //nolint:gosec // the byte is signed
		}
		return append(append(append(low, high...), scales...), half...), values
	}
}

// powerOfTwo returns a power of two near v, and its half-precision encoding.
func powerOfTwo(v float32) (half []byte, power float32) {
	exponent := math.Ilogb(float64(v))
	return binary.LittleEndian.AppendUint16(nil, uint16(exponent+15)<<10), float32(math.Ldexp(1, exponent)) //nolint:gosec // small
}
