package tinyllama

import (
	"io"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/whence-dev/whence/internal/gguf"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/safetensors"
)

// elements returns the number of elements of a tensor.
func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// tensorsOf reads all tensors of a model directory.
func tensorsOf(t *testing.T, dir fs.FS) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	shards, err := safetensors.FindShards(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shards {
		if err := s.Each(dir, func(tensor safetensors.Tensor, r io.Reader) error {
			values := make([]float32, elements(tensor.Shape))
			all[tensor.Name] = values
			return tensor.ReadFloats(r, values)
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestGGUFAnswersLikeLlamaCPP: the GGUF file from which llama.cpp made the goldens has the weights of the
// directory, and gives llama.cpp's answers.
func TestGGUFAnswersLikeLlamaCPP(t *testing.T) {
	dir, err := gguf.Directory("../../../internal/whencetiny/testdata/model-f32.gguf")
	if err != nil {
		t.Fatal(err)
	}
	got, want := tensorsOf(t, dir), tensorsOf(t, whencetiny.FS())
	if !maps.EqualFunc(got, want, slices.Equal[[]float32]) {
		t.Error("the tensors differ")
	}
	w, err := Load(dir, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := New(w, Options{})
	if !slices.Equal(m.EOS(), []uint32{1533, 1535}) || m.ContextLength() != 1024 {
		t.Error(m.EOS(), m.ContextLength())
	}
	for i, g := range goldens(t)[:8] {
		g.check(t, generate(t, m, uint64(i), g.request()))
	}
}
