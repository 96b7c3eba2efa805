//go:build amd64 || arm64

package matrix

import "unsafe"

// assembly returns the assembly of this kind of processor, under a name.
func assembly(name string) machine {
	return machine{
		name: name,
		dots: [3]*[maxInputs]kernel{
			F32: {dotsF32x1, dotsF32x2, dotsF32x3}, BF16: {dotsBF16x1, dotsBF16x2, dotsBF16x3}, Int8: {dotsInt8x1, dotsInt8x2, dotsInt8x3},
		},
		widenBF16: func(dst []float32, w []uint16, blocks int) {
			widenBF16Blocks(&dst[:blocks*Block][0], (*byte)(unsafe.Pointer(&w[:blocks*Block][0])), nil, uintptr(blocks))
		},
		widenInt8: func(dst []float32, w []int8, scales []float32, blocks int) {
			widenInt8Blocks(&dst[:blocks*Block][0], (*byte)(unsafe.Pointer(&w[:blocks*Block][0])), &scales[:blocks][0], uintptr(blocks))
		},
	}
}
