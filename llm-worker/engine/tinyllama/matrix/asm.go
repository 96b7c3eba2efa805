//go:build ignore

// Writes the assembly of this package: for amd64 with AVX2 and FMA, or, with the argument arm64, for
// arm64, to standard output. Run it with scripts/kernels.
//
// A kernel multiplies four rows of weights with one to three rows of float32. Each of its results has
// one accumulator, of eight or four lanes, which takes the columns in order: the result has the same
// bits in each of the kernels, whatever the format of the weights is in memory.

package main

import (
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	rows  = 4  // of weights
	block = 32 // columns of a step
	lanes = 8
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "arm64" {
		fmt.Print(arm64())
		return
	}
	ConstraintExpr("amd64 arm64") // of the declarations, which are the same on both
	for n := 1; n <= 3; n++ {
		dots("F32", n)
		dots("BF16", n)
		dots("Int8", n)
	}
	widen("BF16")
	widen("Int8")
	Generate()
}

// A pointer is the address of the first of several rows, and the bytes from one row to the next.
type pointer struct{ at, stride, stride3 reg.Register }

func load(name string, n int) pointer {
	p := pointer{at: Load(Param(name), GP64())}
	if n > 1 {
		p.stride = Load(Param(name+"Stride"), GP64())
	}
	if n > 3 {
		triple := GP64()
		LEAQ(Mem{Base: p.stride, Index: p.stride, Scale: 2}, triple)
		p.stride3 = triple
	}
	return p
}

// row returns the memory of row i, from an offset on.
func (p pointer) row(i, offset int) Mem {
	m := Mem{Base: p.at, Disp: offset}
	switch i {
	case 1, 2:
		m.Index, m.Scale = p.stride, uint8(i)
	case 3:
		m.Index, m.Scale = p.stride3, 1
	}
	return m
}

// weights loads eight weights as float32. scale is of Int8 alone.
func weights(format string, from Mem, scale reg.VecVirtual) reg.VecVirtual {
	w := YMM()
	switch format {
	case "F32":
		VMOVUPS(from, w)
	case "BF16":
		VPMOVZXWD(from, w)
		VPSLLD(U8(16), w, w)
	case "Int8":
		VPMOVSXBD(from, w)
		VCVTDQ2PS(w, w)
		VMULPS(scale, w, w)
	}
	return w
}

var sizes = map[string]int{"F32": 4, "BF16": 2, "Int8": 1}

func dots(format string, n int) {
	size := sizes[format]
	name := fmt.Sprintf("dots%sx%d", format, n)
	TEXT(name, NOSPLIT, "func(dst *float32, dstStride uintptr, w *byte, wStride uintptr, scales *float32, scalesStride uintptr, x *float32, xStride uintptr, blocks uintptr)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s multiplies four rows of %s weights with %d of x. A block is %d columns.", name, format, n, block))
	w, x := load("w", rows), load("x", n)
	var scales pointer
	if format == "Int8" {
		scales = load("scales", rows)
	}
	blocks := Load(Param("blocks"), GP64())
	ahead := w // the next four rows, so that they are in the cache when their turn comes
	if format != "F32" {
		ahead.at = GP64()
		LEAQ(Mem{Base: w.at, Index: w.stride, Scale: 4}, ahead.at)
	}
	var sums [3][rows]reg.VecVirtual
	for i := range n {
		for r := range rows {
			sums[i][r] = YMM()
			VXORPS(sums[i][r], sums[i][r], sums[i][r])
		}
	}
	Label("next")
	if format == "F32" {
		multiplyFloats(w, x, sums[:n])
	} else {
		multiplyNarrow(format, w, ahead, scales, x, sums[:n])
	}
	ADDQ(Imm(uint64(size*block)), w.at)
	ADDQ(Imm(4*block), x.at)
	if format != "F32" {
		ADDQ(Imm(uint64(size*block)), ahead.at)
	}
	if format == "Int8" {
		ADDQ(Imm(4), scales.at)
	}
	DECQ(blocks)
	JNZ(LabelRef("next"))
	store(sums[:n])
	VZEROUPPER()
	RET()
}

// multiplyFloats adds the products of a block of float32 weights. x stays in registers.
func multiplyFloats(w, x pointer, sums [][rows]reg.VecVirtual) {
	for v := range block / lanes {
		var xs [3]reg.VecVirtual
		for i := range sums {
			xs[i] = YMM()
			VMOVUPS(x.row(i, 4*lanes*v), xs[i])
		}
		for r := range rows {
			a := weights("F32", w.row(r, sizes["F32"]*lanes*v), nil)
			for i := range sums {
				VFMADD231PS(xs[i], a, sums[i][r])
			}
		}
	}
}

// multiplyNarrow adds the products of a block of weights in another format.
func multiplyNarrow(format string, w, ahead, scales, x pointer, sums [][rows]reg.VecVirtual) {
	for r := range rows {
		PREFETCHT0(ahead.row(r, 0))
		var scale reg.VecVirtual
		if format == "Int8" {
			scale = YMM()
			VBROADCASTSS(scales.row(r, 0), scale)
		}
		for v := range block / lanes {
			a := weights(format, w.row(r, sizes[format]*lanes*v), scale)
			for i := range sums {
				VFMADD231PS(x.row(i, 4*lanes*v), a, sums[i][r])
			}
		}
	}
}

// store adds the lanes of the accumulators, and stores the sums.
func store(sums [][rows]reg.VecVirtual) {
	Comment("Add the lanes of four accumulators at a time.")
	dst := load("dst", len(sums))
	for i, s := range sums {
		VHADDPS(s[1], s[0], s[0])
		VHADDPS(s[3], s[2], s[2])
		VHADDPS(s[2], s[0], s[0])
		high := XMM()
		VEXTRACTF128(Imm(1), s[0], high)
		VADDPS(high, s[0].AsX(), high)
		VMOVUPS(high, dst.row(i, 0))
	}
}

func widen(format string) {
	size := sizes[format]
	TEXT("widen"+format+"Blocks", NOSPLIT, "func(dst *float32, w *byte, scales *float32, blocks uintptr)")
	Pragma("noescape")
	Doc(fmt.Sprintf("widen%sBlocks converts blocks of %d %s weights to float32.", format, block, format))
	dst, w, blocks := load("dst", 1), load("w", 1), Load(Param("blocks"), GP64())
	var scales pointer
	if format == "Int8" {
		scales = load("scales", 1)
	}
	Label("next")
	var scale reg.VecVirtual
	if format == "Int8" {
		scale = YMM()
		VBROADCASTSS(scales.row(0, 0), scale)
		ADDQ(Imm(4), scales.at)
	}
	for v := range block / lanes {
		VMOVUPS(weights(format, w.row(0, size*lanes*v), scale), dst.row(0, 4*lanes*v))
	}
	ADDQ(Imm(uint64(size*block)), w.at)
	ADDQ(Imm(4*block), dst.at)
	DECQ(blocks)
	JNZ(LabelRef("next"))
	VZEROUPPER()
	RET()
}
