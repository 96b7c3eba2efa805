package safetensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
)

// dtypes are the kinds of numbers that become float32 without loss.
var dtypes = map[string]struct {
	size   int64
	decode func(dst []float32, src []byte)
}{
	"F32":  {4, decodeF32},
	"BF16": {2, decodeBF16},
	"F16":  {2, decodeF16},
}

// Check returns an error if ReadFloats cannot fill a tensor of this shape from t.
func (t Tensor) Check(shape ...int) error {
	if !slices.Equal(t.Shape, shape) {
		return fmt.Errorf("tensor %q has shape %v, not %v", t.Name, t.Shape, shape)
	}
	d, ok := dtypes[t.DType]
	if !ok {
		return fmt.Errorf("tensor %q has dtype %q; F32, BF16 and F16 are supported", t.Name, t.DType)
	}
	want := d.size
	for _, n := range shape {
		if n < 0 || (n > 0 && want > math.MaxInt64/int64(n)) {
			return fmt.Errorf("tensor %q: shape %v is absurd", t.Name, shape)
		}
		want *= int64(n)
	}
	if got := t.End - t.Begin; got != want {
		return fmt.Errorf("tensor %q takes %d bytes, but its shape %v needs %d", t.Name, got, shape, want)
	}
	return nil
}

// ReadFloats reads t into dst, which has t's length, from r, which is at t's first byte. Check must
// have accepted t.
func (t Tensor) ReadFloats(r io.Reader, dst []float32) error {
	d, ok := dtypes[t.DType]
	if !ok || int64(len(dst))*d.size != t.End-t.Begin {
		return fmt.Errorf("tensor %q does not fill %d numbers", t.Name, len(dst))
	}
	var chunk [16 << 10]byte
	for len(dst) > 0 {
		n := min(len(dst), len(chunk)/int(d.size))
		src := chunk[:n*int(d.size)]
		if _, err := io.ReadFull(r, src); err != nil {
			return fmt.Errorf("read tensor %q: %w", t.Name, noEOF(err))
		}
		d.decode(dst[:n], src)
		dst = dst[n:]
	}
	return nil
}

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// decodeBF16 widens the upper half of a float32.
func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// decodeF16 widens IEEE 754 half precision.
func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = halfToFloat(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func halfToFloat(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exponent {
	case 0: // zero and subnormals, which float32 holds as normal numbers
		f := float32(fraction) / (1 << 24)
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 0x1f: // infinities and NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	default:
		return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
	}
}
