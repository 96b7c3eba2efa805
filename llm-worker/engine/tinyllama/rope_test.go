package tinyllama

import (
	"math"
	"slices"
	"testing"
)

// A GGUF file has the factors of llama3's RoPE instead of its parameters.
func TestFactorsOfRoPEAreThoseOfLlama3(t *testing.T) {
	frequencies := func(r ropeJSON) []float64 {
		t.Helper()
		j := configJSON{RopeTheta: new(500000.0), RopeScaling: &r}
		f, err := j.rope(64)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	plain := frequencies(ropeJSON{})
	want := frequencies(ropeJSON{Type: "llama3", Factor: 32, LowFactor: 1, HighFactor: 4, Original: 8192})
	factors := ropeJSON{Type: "factors"}
	for i, f := range want {
		factors.Factors = append(factors.Factors, plain[i]/f)
	}
	for i, f := range frequencies(factors) {
		if math.Abs(f/want[i]-1) > 1e-12 {
			t.Errorf("pair %d: %v, want %v", i, f, want[i])
		}
	}
	for _, bad := range [][]float64{nil, make([]float64, 32), slices.Repeat([]float64{1}, 31)} {
		j := configJSON{RopeScaling: &ropeJSON{Type: "factors", Factors: bad}}
		if _, err := j.rope(64); err == nil {
			t.Errorf("%v are accepted", bad)
		}
	}
}
