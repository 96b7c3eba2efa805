package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/whence-dev/whence/internal/tier"
)

var small = shape{hidden: 64, feedForward: 96, layers: 2, heads: 4, kvHeads: 2, vocab: 110000, context: 256}

func TestTheEmbeddedEngineIsMeasured(t *testing.T) {
	tier.Full(t)
	dir := t.TempDir()
	gguf := filepath.Join(dir, "model.gguf")
	if err := write(small, dir, gguf); err != nil {
		t.Fatal(err)
	}
	for _, weights := range formats {
		s, err := measureWhence(dir, weights, options{threads: 2, tokens: 3, prompt: 70})
		if err != nil || !(s.Decode1 > 0) || !(s.Decode8 > 0) || !(s.Prefill > 0) {
			t.Errorf("weights %q: %+v, %v", weights, s, err)
		}
	}
	b, err := os.ReadFile(gguf) //nolint:gosec // a temporary file
	if err != nil {
		t.Fatal(err)
	}
	want := 0 // the data of all tensors
	for _, m := range small.tensors() {
		size, _ := m.size()
		want += pad(size)
	}
	if !bytes.HasPrefix(b, []byte("GGUF\x03\x00\x00\x00")) || len(b)%alignment != 0 || len(b) < want {
		t.Errorf("the GGUF file has %d bytes and begins with %q", len(b), b[:8])
	}
}

func TestHalfPrecisionRounds(t *testing.T) {
	for v, want := range map[float32]uint16{
		0: 0, 0x1p-24: 1, 0x1p-25: 0, 0x1p-14: 0x400, 0x1p-14 - 0x1p-24: 0x3ff, 0.5: 0x3800, 1: 0x3c00, 1.0 / 3: 0x3555,
		1 + 0x1p-11: 0x3c00, 1 + 3*0x1p-11: 0x3c02, 65504: 0x7bff,
	} {
		if got := half(v); got != want {
			t.Errorf("%v is %#x, want %#x", v, got, want)
		}
	}
}

func TestBlocksOfQ8AreWithinHalfAStep(t *testing.T) {
	values, largest := make([]float32, block), float32(0)
	for i := range values {
		values[i] = float32(i*i%31) / 7 * float32(1-i%2*2)
		largest = max(largest, values[i], -values[i])
	}
	out := appendQ8(nil, values)
	if len(out) != block+2 {
		t.Fatalf("a block has %d bytes", len(out))
	}
	step := float64(largest) / 127
	for i, v := range values {
		if got := float64(int8(out[2+i])) * step; math.Abs(got-float64(v)) > 0.51*step {
			t.Errorf("number %d is %v, want %v", i, got, v)
		}
	}
}
