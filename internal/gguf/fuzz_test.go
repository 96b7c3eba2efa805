package gguf

import (
	"encoding/json"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/gguf/gguftest"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// seeds returns files of each architecture, format and kind of metadata, and broken ones.
func seeds() (all [][]byte) {
	r := rand.New(rand.NewPCG(1, 2))
	for name := range families {
		all = append(all, small(func(p *gguftest.File) {
			for key, value := range p.Meta {
				if rest, ok := strings.CutPrefix(key, "llama."); ok {
					delete(p.Meta, key)
					p.Meta[name+"."+rest] = value
				}
			}
			p.Meta["general.architecture"] = name
			p.Meta[name+".attention.sliding_window"], p.Meta[name+".rope.scaling.type"] = uint32(16), "linear"
			p.Tensors = append(p.Tensors,
				gguftest.Tensor{Name: ropeFactors, Dims: []uint64{8}, Data: numbers(8)},
				gguftest.Tensor{Name: "blk.0.attn_q.bias", Dims: []uint64{32}, Data: numbers(32)},
				gguftest.Tensor{Name: "output.weight", Dims: []uint64{32, 4}, Data: numbers(128)})
		}).Bytes())
	}
	for kind, f := range formats {
		all = append(all, small(func(p *gguftest.File) {
			p.Meta["llama.embedding_length"] = uint32(256)
			data := make([]byte, 256/f.elements*f.bytes)
			for i := range data {
				data[i] = byte(r.Uint32())
			}
			p.Tensors = []gguftest.Tensor{{Name: "token_embd.weight", Dims: []uint64{256, 1}, Kind: kind, Data: data}}
		}).Bytes())
	}
	whole := small(func(p *gguftest.File) {
		p.Meta["list"], p.Meta["words"], p.Meta["yes"] = []float32{1, 2}, []string{"", "a"}, true
	}).Bytes()
	for _, n := range []int{0, 4, 8, 23, 24, 100, len(whole) / 2, len(whole) - 1, len(whole)} {
		all = append(all, whole[:n])
	}
	for range 20 { // one byte of the header is wrong
		broken := slices.Clone(whole)
		broken[r.IntN(len(broken)/2)] ^= byte(1 << r.IntN(8))
		all = append(all, broken)
	}
	return all
}

// FuzzFile reads all files of a directory made from any bytes.
func FuzzFile(f *testing.F) {
	for _, file := range seeds() {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "any.gguf")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		described, err := Description(path)
		if err == nil {
			readAll(t, described)
		}
		dir, err := Directory(path)
		if err != nil {
			return
		}
		readAll(t, dir)
		weights, err := dir.Open("model.safetensors")
		if err != nil {
			t.Fatal(err)
		}
		defer weights.Close()
		info, err := weights.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, weights); err != nil || n != info.Size() {
			t.Errorf("%d bytes of %d, %v", n, info.Size(), err)
		}
	})
}

// readAll reads all files that are made from metadata.
func readAll(t *testing.T, dir fs.FS) {
	t.Helper()
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"} {
		if b, err := fs.ReadFile(dir, name); err == nil && !json.Valid(b) {
			t.Errorf("%s is %q", name, b)
		}
	}
	_, _ = tokenizer.Open(dir) // an error or a tokenizer
}

// FuzzMetadata makes files from what another program claims to be metadata.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"general.architecture":"gemma3","gemma3.context_length":1024,"tokenizer.ggml.model":"gpt2","tokenizer.ggml.pre":"qwen2","tokenizer.ggml.tokens":["a","b"],"tokenizer.ggml.token_type":[1,3],"tokenizer.ggml.merges":[],"tokenizer.ggml.bos_token_id":1}`))
	f.Add([]byte(`{"tokenizer.ggml.model":"llama","tokenizer.ggml.tokens":["<unk>","a"],"tokenizer.ggml.scores":[-1.5,2e300],"tokenizer.ggml.token_type":[2,5,6],"x":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var metadata map[string]json.RawMessage
		if json.Unmarshal(text, &metadata) != nil {
			return
		}
		if dir, err := FromMetadata(metadata); err == nil {
			readAll(t, dir)
		}
	})
}
