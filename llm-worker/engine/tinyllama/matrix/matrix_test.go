package matrix

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var formats = []Format{F32, BF16, Int8}

// normal returns normally distributed numbers.
func normal(random *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(random.NormFloat64())
	}
	return out
}

// newRandom returns a matrix of normally distributed weights.
func newRandom(random *rand.Rand, f Format, rows, columns int) *Matrix {
	m := New(f, rows, columns)
	m.Set(0, normal(random, rows*columns))
	return m
}

// TestProductsAreCorrectUpToRounding compares every kernel with products of the weights that Row returns.
func TestProductsAreCorrectUpToRounding(t *testing.T) {
	test := func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 1))
		for _, f := range formats {
			for _, columns := range []int{1, 7, 31, 32, 33, 96, 352, 4864} {
				for _, n := range []int{1, 2, 3, 4, 11} {
					rows := 1 + random.IntN(70)
					m, x := newRandom(random, f, rows, columns), Rows{normal(random, n*(columns+5)), columns + 5}
					dst := Rows{make([]float32, n*(rows+3)), rows + 3}
					m.Multiply(dst, x, n, 0, rows, &Scratch{})
					w := make([]float32, columns)
					for r := range rows {
						m.Row(w, r)
						for i := range n {
							want, size := 0.0, 0.0
							for j, v := range w {
								p := float64(v) * float64(x.Data[i*x.Stride+j])
								want, size = want+p, size+math.Abs(p)
							}
							if got := float64(dst.Data[i*dst.Stride+r]); math.Abs(got-want) > 1e-6*size {
								t.Fatalf("%v, %d columns, row %d of %d, input %d of %d: %v, want %v", f, columns, r, rows, i, n, got, want)
							}
						}
					}
				}
			}
		}
	}
	t.Run(Machine(), test)
	t.Run("portable", func(t *testing.T) {
		defer Portable()()
		test(t)
	})
}

// TestOtherRowsDoNotChangeABit: a product has the same bits whatever else is computed with it.
func TestOtherRowsDoNotChangeABit(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for _, f := range formats {
		for _, columns := range []int{31, 64, 100, 896, 5000} {
			t.Run(fmt.Sprint(f, columns), func(t *testing.T) {
				const rows, n = 43, 12
				m, x := newRandom(random, f, rows, columns), Rows{normal(random, n*columns), columns}
				want := make([]float32, n*rows)
				for i := range n { // one row alone, one number at a time
					for r := range rows {
						m.Multiply(Rows{want[i*rows:], rows}, Rows{x.Data[i*columns:], columns}, 1, r, r+1, &Scratch{})
					}
				}
				s := &Scratch{}
				for range 200 {
					count, first := 1+random.IntN(n), random.IntN(rows)
					last, from := first+1+random.IntN(rows-first), random.IntN(n)
					count = min(count, n-from)
					got := make([]float32, count*rows)
					m.Multiply(Rows{got, rows}, Rows{x.Data[from*columns:], columns}, count, first, last, s)
					for i := range count {
						if !slices.Equal(got[i*rows+first:i*rows+last], want[(from+i)*rows+first:(from+i)*rows+last]) {
							t.Fatalf("rows %d to %d with inputs %d to %d differ", first, last, from, from+count)
						}
					}
				}
			})
		}
	}
}

func TestFormatsBoundTheError(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	const rows, columns = 5, 77
	values, got := normal(random, rows*columns), make([]float32, columns)
	for _, f := range formats {
		m := New(f, rows, columns)
		m.Set(0, values[:2*columns])
		m.Set(2, values[2*columns:])
		again := New(f, rows, columns)
		for r := range rows {
			m.Row(got, r)
			for b := 0; b < columns; b += Block {
				largest := float32(0)
				row := values[r*columns:]
				for i := b; i < min(b+Block, columns); i++ {
					largest = max(largest, row[i], -row[i])
				}
				for i := b; i < min(b+Block, columns); i++ {
					v := row[i]
					off := math.Abs(float64(got[i] - v))
					limit := map[Format]float64{F32: 0, BF16: math.Abs(float64(v)) / 256, Int8: float64(largest) / 127 / 2 * 1.00001}[f]
					if off > limit {
						t.Fatalf("%v: %v became %v, off by more than %v", f, v, got[i], limit)
					}
				}
			}
			again.Set(r, got)
			twice := make([]float32, columns)
			if again.Row(twice, r); !slices.Equal(twice, got) {
				t.Errorf("%v: a row changed when it was set again", f)
			}
		}
	}
}

// TestInt8KeepsQ8: a block of Q8_0, which is a half-precision scale times int8, one of them 127 or -127, is
// kept without loss.
func TestInt8KeepsQ8(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	for range 1000 {
		scale := math.Float32frombits(uint32(100+random.IntN(30))<<23 | random.Uint32N(1<<10)<<13)
		values := make([]float32, Block)
		for i := range values {
			values[i] = scale * float32(random.IntN(255)-127)
		}
		values[random.IntN(Block)] = scale * 127
		m, got := New(Int8, 1, Block), make([]float32, Block)
		m.Set(0, values)
		if m.Row(got, 0); !slices.Equal(got, values) {
			t.Fatalf("scale %v: %v became %v", scale, values, got)
		}
	}
}

func TestNonFiniteNumbersAffectOnlyTheirResults(t *testing.T) {
	for _, f := range formats {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			m := New(f, 3, 64)
			row := make([]float32, 64)
			row[40] = bad
			m.Set(1, row)
			x, dst := Rows{make([]float32, 2*64), 64}, Rows{make([]float32, 6), 3}
			x.Data[100] = 1 // of the second row alone
			m.Multiply(dst, x, 2, 0, 3, &Scratch{})
			if !math.IsNaN(float64(dst.Data[1])) || !math.IsNaN(float64(dst.Data[4])) { // 0 times infinity
				t.Errorf("%v with %v: %v", f, bad, dst.Data)
			}
			for i, v := range dst.Data {
				if i%3 != 1 && v != 0 {
					t.Errorf("%v with %v: row %d is %v", f, bad, i, v)
				}
			}
		}
	}
}

// BenchmarkMultiply measures the shapes of Qwen2-0.5B on one core: decode is bound by the bytes of
// weights (MB/s), and prompts by multiplications (GMAC/s).
func BenchmarkMultiply(b *testing.B) {
	random := rand.New(rand.NewPCG(5, 5))
	for _, shape := range [][2]int{{9728, 896}, {896, 4864}} {
		for _, f := range formats {
			m := newRandom(random, f, shape[0], shape[1])
			for _, n := range []int{1, 3, 8, 64} {
				b.Run(fmt.Sprintf("%dx%d/%v/n=%d", shape[0], shape[1], f, n), func(b *testing.B) {
					x, dst, s := Rows{normal(random, n*shape[1]), shape[1]}, Rows{make([]float32, n*shape[0]), shape[0]}, &Scratch{}
					for b.Loop() {
						m.Multiply(dst, x, n, 0, shape[0], s)
					}
					macs := float64(b.N) * float64(shape[0]*shape[1])
					b.ReportMetric(macs*float64(n)/b.Elapsed().Seconds()/1e9, "GMAC/s")
				})
			}
		}
	}
}
