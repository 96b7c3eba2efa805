package tinyllama

import "math"

// A rotation is the cosine and sine of each pair's angle at one position.
type rotation struct{ cos, sin []float32 }

func newRotation(pairs int) rotation {
	return rotation{make([]float32, pairs), make([]float32, pairs)}
}

// turnTo sets the rotation of a position. It is computed for each token, because with a long
// context a table of all positions would cost more memory than the time that it saves is worth.
func (r rotation) turnTo(position int, frequencies []float64) {
	for i, f := range frequencies {
		sin, cos := math.Sincos(float64(position) * f)
		r.cos[i], r.sin[i] = float32(cos), float32(sin)
	}
}

// apply rotates one head in place. Element i pairs with element i + len/2, as Hugging Face stores
// weights.
func (r rotation) apply(head []float32) {
	half := len(head) / 2
	lo, hi := head[:half], head[half:]
	cos, sin := r.cos[:half], r.sin[:half]
	for i, a := range lo {
		b := hi[i]
		lo[i] = a*cos[i] - b*sin[i]
		hi[i] = a*sin[i] + b*cos[i]
	}
}
