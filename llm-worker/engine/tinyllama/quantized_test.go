package tinyllama

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/gguf"
	"github.com/whence-dev/whence/internal/gguf/gguftest"
)

// ggufNames are GGUF's names of the tensors of a layer.
var ggufNames = map[string]string{
	"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
	"post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
	"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
}

// quantized returns a GGUF file with random blocks in the formats that kind chooses, and sets the
// weights of m to the numbers that the blocks stand for.
func (m *randomModel) quantized(r *rand.Rand, kind func(tensor string) uint32) gguftest.File {
	size := func(key string) uint32 { return uint32(m.config[key].(int)) }
	f := gguftest.File{Meta: map[string]any{
		"general.architecture": "llama", "llama.block_count": size("num_hidden_layers"), "llama.context_length": size("max_position_embeddings"),
		"llama.embedding_length": size("hidden_size"), "llama.feed_forward_length": size("intermediate_size"),
		"llama.attention.head_count": size("num_attention_heads"), "llama.attention.head_count_kv": size("num_key_value_heads"),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5), "tokenizer.ggml.eos_token_id": size("eos_token_id"),
	}}
	var tokens []string
	for i := range size("vocab_size") {
		tokens = append(tokens, fmt.Sprint("token ", i))
	}
	f.Meta["tokenizer.ggml.tokens"] = tokens
	for _, name := range slices.Sorted(maps.Keys(m.tensors)) {
		t := m.tensors[name]
		base := strings.TrimSuffix(name, ".weight")
		renamed := ggufNames[base] + ".weight"
		if rest, ok := strings.CutPrefix(base, "model.layers."); ok {
			layer, part, _ := strings.Cut(rest, ".")
			renamed = "blk." + layer + "." + ggufNames[part] + ".weight"
		}
		out := gguftest.Tensor{Name: renamed}
		for _, n := range slices.Backward(t.shape) {
			out.Dims = append(out.Dims, uint64(n))
		}
		if len(t.shape) == 1 { // a norm
			var values []float32
			out.Data, values = gguftest.Random(r, gguftest.F32, len(t.values), 1)
			copy(t.values, values)
		} else {
			out.Kind = kind(renamed)
			var values []float32
			out.Data, values = gguftest.Random(r, out.Kind, len(t.values), 0.1)
			heads := map[bool]int{strings.Contains(base, "q_proj"): int(size("num_attention_heads")), strings.Contains(base, "k_proj"): int(size("num_key_value_heads"))}[true]
			for row := range t.shape[0] {
				copy(t.values[row*t.shape[1]:][:t.shape[1]], values[interleaved(row, t.shape[0], heads)*t.shape[1]:])
			}
		}
		f.Tensors = append(f.Tensors, out)
	}
	return f
}

// interleaved returns the row of a GGUF file with a row of q or k: the converter of llama.cpp puts the
// second half of each head between the rows of the first half.
func interleaved(row, rows, heads int) int {
	if heads == 0 {
		return row
	}
	dim := rows / heads
	head, half, at := row/dim, row%dim/(dim/2), row%(dim/2)
	return head*dim + 2*at + half
}

// A quantized file gives the tokens that its numbers give when they are stored as F32.
func TestQuantizedFilesAnswerLikeTheirNumbers(t *testing.T) {
	for name, kind := range map[string]func(tensor string) uint32{
		"Q8_0": func(string) uint32 { return gguftest.Q80 },
		"Q4_K_M": func(tensor string) uint32 {
			if strings.HasSuffix(tensor, "attn_v.weight") || strings.HasSuffix(tensor, "ffn_down.weight") || tensor == "output.weight" {
				return gguftest.Q6K
			}
			return gguftest.Q4K
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			numbers := newRandomModel(8, map[string]any{"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 300, "eos_token_id": 299})
			file := numbers.quantized(rand.New(rand.NewPCG(3, 4)), kind)
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			dir, err := gguf.Directory(path)
			if err != nil {
				t.Fatal(err)
			}
			weights, err := Load(dir, LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			quantized, plain := New(weights, Options{Threads: 1}), New(numbers.load(t), Options{Threads: 1})
			seen := map[uint32]bool{}
			for i := range uint64(4) {
				req := &workerv1.TokenRequest{Sampling: &llmv1.Sampling{Temperature: new(float32(0)), MaxTokens: new(uint32(24)), IgnoreEos: true}}
				for n := range 5 + 3*uint32(i) {
					req.Prompt = append(req.Prompt, (n*37+uint32(i)*11)%299)
				}
				got, want := generate(t, quantized, i, req), generate(t, plain, i, req)
				for at := range want {
					if seen[want[at].Token] = true; got[at].Token != want[at].Token {
						t.Fatalf("prompt %d: token %d is %d, want %d", i, at, got[at].Token, want[at].Token)
					}
				}
			}
			if len(seen) < 8 {
				t.Errorf("the answers have %d different tokens, too few to show a difference", len(seen))
			}
		})
	}
}
