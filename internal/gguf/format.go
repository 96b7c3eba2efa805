package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A format is how a tensor stores its numbers: in blocks of equal size.
type format struct {
	name     string
	elements int // numbers of a block
	bytes    int // of a block
	dtype    string
	decode   func(dst []float32, block []byte) // nil if dtype has the same bytes
}

// formats are the supported formats, by ggml's numbers. The layout of each block is that of ggml.
var formats = map[uint32]format{
	0:  {"F32", 1, 4, "F32", nil},
	1:  {"F16", 1, 2, "F16", nil},
	2:  {"Q4_0", 32, 18, "F32", decodeQ40},
	6:  {"Q5_0", 32, 22, "F32", decodeQ50},
	8:  {"Q8_0", 32, 34, "F32", decodeQ80},
	12: {"Q4_K", 256, 144, "F32", decodeQ4K},
	13: {"Q5_K", 256, 176, "F32", decodeQ5K},
	14: {"Q6_K", 256, 210, "F32", decodeQ6K},
	30: {"BF16", 1, 2, "BF16", nil},
}

// formatName returns the name of a format that is not supported.
func formatName(kind uint32) string {
	names := map[uint32]string{
		3: "Q4_1", 7: "Q5_1", 10: "Q2_K", 11: "Q3_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
		21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
	}
	if name, ok := names[kind]; ok {
		return name
	}
	return fmt.Sprintf("number %d", kind)
}

func half(b []byte) float32 {
	h := binary.LittleEndian.Uint16(b)
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exponent {
	case 0: // zero and subnormals, which float32 holds as normal numbers
		return math.Float32frombits(math.Float32bits(float32(fraction)/(1<<24)) | sign)
	case 0x1f: // infinities and NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	default:
		return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
	}
}

// In the following functions the conversions of products keep compilers from fusing them with an
// addition, which would round differently on some processors.

func decodeQ40(dst []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:18] {
		dst[i] = float32(int(q&15)-8) * d
		dst[i+16] = float32(int(q>>4)-8) * d
	}
}

func decodeQ50(dst []float32, b []byte) {
	d, high := half(b), binary.LittleEndian.Uint32(b[2:])
	for i, q := range b[6:22] {
		dst[i] = float32(int(uint32(q&15)|high>>i&1<<4)-16) * d
		dst[i+16] = float32(int(uint32(q>>4)|high>>(i+16)&1<<4)-16) * d
	}
}

func decodeQ80(dst []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:34] {
		dst[i] = float32(int8(q)) * d
	}
}

// scaleMin returns the nth 6-bit scale and minimum of a block of Q4_K or Q5_K.
func scaleMin(n int, s []byte) (scale, minimum float32) {
	if n < 4 {
		return float32(s[n] & 63), float32(s[n+4] & 63)
	}
	return float32(s[n+4]&15 | s[n-4]>>6<<4), float32(s[n+4]>>4 | s[n]>>6<<4)
}

func decodeQ4K(dst []float32, b []byte) {
	decode45K(dst, half(b), half(b[2:]), b[4:16], nil, b[16:144])
}

func decodeQ5K(dst []float32, b []byte) {
	decode45K(dst, half(b), half(b[2:]), b[4:16], b[16:48], b[48:176])
}

// decode45K decodes eight groups of 32 numbers. high has the fifth bit of each number, or is nil.
func decode45K(dst []float32, d, dmin float32, scales, high, low []byte) {
	for group := range 8 {
		scale, minimum := scaleMin(group, scales)
		scale, minimum = d*scale, dmin*minimum
		for i := range 32 {
			q := low[group/2*32+i] >> (group % 2 * 4) & 15
			if high != nil {
				q |= high[i] >> group & 1 << 4
			}
			dst[group*32+i] = float32(scale*float32(q)) - minimum
		}
	}
}

func decodeQ6K(dst []float32, b []byte) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for group := range 8 { // of 32 numbers
		part, nth := group/4, group%4 // two parts of four groups
		for i := range 32 {
			l := low[part*64+nth%2*32+i] >> (nth / 2 * 4) & 15
			q := int(l|high[part*32+i]>>(2*nth)&3<<4) - 32
			scale := d * float32(int8(scales[part*8+2*nth+i/16]))
			dst[group*32+i] = scale * float32(q)
		}
	}
}
