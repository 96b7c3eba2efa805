package tinyllama

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"

	"github.com/whence-dev/whence/internal/tier"
)

// reference is the textbook forward pass: in float64, one position after another, sharing only the
// config with the engine. It returns the logits after the last of ids.
func (m *randomModel) reference(c *modelConfig, frequency func(pair int) float64, ids []uint32) []float64 {
	type vectors = [][]float64
	keys, values := make([]vectors, c.Layers), make([]vectors, c.Layers)
	var x []float64
	for position, id := range ids {
		x = m.row("model.embed_tokens.weight", int(id), c.Hidden)
		for l := range c.Layers {
			p := fmt.Sprintf("model.layers.%d.", l)
			h := m.norm(p+"input_layernorm.weight", x, c)
			var q, k, v []float64
			if _, fused := m.tensors[p+"self_attn.qkv_proj.weight"]; fused {
				all, n := m.times(p+"self_attn.qkv_proj", h), c.HeadDim
				q, k, v = all[:c.Heads*n], all[c.Heads*n:(c.Heads+c.KVHeads)*n], all[(c.Heads+c.KVHeads)*n:]
			} else {
				q, k, v = m.times(p+"self_attn.q_proj", h), m.times(p+"self_attn.k_proj", h), m.times(p+"self_attn.v_proj", h)
			}
			m.normHeads(p+"self_attn.q_norm.weight", q, c)
			m.normHeads(p+"self_attn.k_norm.weight", k, c)
			turn(q, c.HeadDim, position, frequency)
			turn(k, c.HeadDim, position, frequency)
			keys[l], values[l] = append(keys[l], k), append(values[l], v)
			out := make([]float64, len(q))
			for head := range c.Heads {
				at, from := head*c.HeadDim, head/(c.Heads/c.KVHeads)*c.HeadDim
				weights, total := make([]float64, position+1), 0.0
				for i := range weights {
					dot := 0.0
					for j := range c.HeadDim {
						dot += q[at+j] * keys[l][i][from+j]
					}
					weights[i] = math.Exp(dot / math.Sqrt(float64(c.HeadDim)))
					total += weights[i]
				}
				for i, weight := range weights {
					for j := range c.HeadDim {
						out[at+j] += weight / total * values[l][i][from+j]
					}
				}
			}
			add(x, m.times(p+"self_attn.o_proj", out))
			h = m.norm(p+"post_attention_layernorm.weight", x, c)
			var gate, up []float64
			if _, fused := m.tensors[p+"mlp.gate_up_proj.weight"]; fused {
				both := m.times(p+"mlp.gate_up_proj", h)
				gate, up = both[:len(both)/2], both[len(both)/2:]
			} else {
				gate, up = m.times(p+"mlp.gate_proj", h), m.times(p+"mlp.up_proj", h)
			}
			for i, g := range gate {
				gate[i] = g / (1 + math.Exp(-g)) * up[i]
			}
			add(x, m.times(p+"mlp.down_proj", gate))
		}
	}
	head := "lm_head"
	if c.Tied {
		head = "model.embed_tokens"
	}
	return m.times(head, m.norm("model.norm.weight", x, c))
}

func (m *randomModel) row(name string, i, width int) []float64 {
	out := make([]float64, width)
	for j, v := range m.tensors[name].values[i*width : (i+1)*width] {
		out[j] = float64(v)
	}
	return out
}

func (m *randomModel) times(name string, x []float64) []float64 {
	shape := m.tensors[name+".weight"].shape
	out := make([]float64, shape[0])
	if bias, ok := m.tensors[name+".bias"]; ok {
		for i, v := range bias.values {
			out[i] = float64(v)
		}
	}
	for i := range out {
		for j, w := range m.row(name+".weight", i, shape[1]) {
			out[i] += w * x[j]
		}
	}
	return out
}

func (m *randomModel) norm(name string, x []float64, c *modelConfig) []float64 {
	sum, out := 0.0, m.row(name, 0, len(x))
	for _, v := range x {
		sum += v * v
	}
	for i, v := range x {
		out[i] *= v / math.Sqrt(sum/float64(len(x))+float64(c.NormEpsilon))
	}
	return out
}

// normHeads normalizes each head in place, if the model has a norm of this name.
func (m *randomModel) normHeads(name string, heads []float64, c *modelConfig) {
	if _, ok := m.tensors[name]; !ok {
		return
	}
	for at := 0; at < len(heads); at += c.HeadDim {
		copy(heads[at:], m.norm(name, heads[at:at+c.HeadDim], c))
	}
}

func turn(x []float64, dim, position int, frequency func(int) float64) {
	for head := 0; head < len(x); head += dim {
		for i := range dim / 2 {
			sin, cos := math.Sincos(float64(position) * frequency(i))
			a, b := x[head+i], x[head+i+dim/2]
			x[head+i], x[head+i+dim/2] = a*cos-b*sin, a*sin+b*cos
		}
	}
}

func add(x, y []float64) {
	for i, v := range y {
		x[i] += v
	}
}

// family returns changes that make a config name another architecture.
func family(name string, more map[string]any) map[string]any {
	change := map[string]any{"architectures": []string{name + "ForCausalLM"}, "model_type": strings.ToLower(name)}
	maps.Copy(change, more)
	return change
}

// The reference computes each architecture from its published definition, in float64.
func TestLogitsMatchTheReference(t *testing.T) {
	plain := func(theta float64, dim int) func(int) float64 {
		return func(i int) float64 { return math.Pow(theta, -2*float64(i)/float64(dim)) }
	}
	for name, c := range map[string]struct {
		change    map[string]any
		dtype     string
		format    string
		shards    int
		frequency func(int) float64
	}{
		"plain":               {frequency: plain(10000, 6)},
		"tied, BF16":          {change: map[string]any{"tie_word_embeddings": true}, dtype: "BF16", frequency: plain(10000, 6)},
		"sharded, F16":        {shards: 3, dtype: "F16", frequency: plain(10000, 6)},
		"no grouping":         {change: map[string]any{"num_key_value_heads": 4}, frequency: plain(10000, 6)},
		"heads not given":     {change: map[string]any{"num_key_value_heads": nil}, frequency: plain(10000, 6)},
		"one KV head":         {change: map[string]any{"num_key_value_heads": 1}, frequency: plain(10000, 6)},
		"wide heads":          {change: map[string]any{"head_dim": 10, "rope_theta": 500.0}, frequency: plain(500, 10)},
		"biases":              {change: map[string]any{"attention_bias": true, "mlp_bias": true}, frequency: plain(10000, 6)},
		"Mistral":             {change: family("Mistral", map[string]any{"sliding_window": nil}), frequency: plain(10000, 6)},
		"Qwen2":               {change: family("Qwen2", map[string]any{"tie_word_embeddings": true}), dtype: "BF16", frequency: plain(10000, 6)},
		"Qwen3":               {change: family("Qwen3", map[string]any{"head_dim": 10}), frequency: plain(10000, 10)},
		"Qwen3 with biases":   {change: family("Qwen3", map[string]any{"head_dim": 6, "attention_bias": true}), frequency: plain(10000, 6)},
		"Phi-3":               {change: family("Phi3", nil), frequency: plain(10000, 6)},
		"larger than a block": {change: map[string]any{"hidden_size": 64, "intermediate_size": 200, "vocab_size": 333}, frequency: plain(10000, 16)},
		"as bf16":             {change: map[string]any{"hidden_size": 64, "intermediate_size": 200}, format: "bf16", frequency: plain(10000, 16)},
		"as int8":             {change: map[string]any{"hidden_size": 64, "intermediate_size": 200}, format: "int8", frequency: plain(10000, 16)},
		"Phi-3, F16 as int8":  {change: family("Phi3", nil), dtype: "F16", format: "int8", frequency: plain(10000, 6)},
		"Qwen2, BF16 as int8": {change: family("Qwen2", map[string]any{"tie_word_embeddings": true}), dtype: "BF16", format: "int8", frequency: plain(10000, 6)},
		"BF16 as f32":         {dtype: "BF16", format: "f32", frequency: plain(10000, 6)},
		"linear rope": {
			change:    map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 4.0}},
			frequency: func(i int) float64 { return plain(10000, 6)(i) / 4 },
		},
		"rope_parameters": {
			change:    map[string]any{"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 700.0}},
			frequency: plain(700, 6),
		},
		"llama3 rope": {
			change: map[string]any{"head_dim": 8, "rope_theta": 100.0, "rope_scaling": map[string]any{
				"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
			}},
			// Frequencies 1, 0.316, 0.1 and 0.0316 turn 10.2, 3.22, 1.02 and 0.32 times in 64
			// positions: one is above both factors, two are between them, and one is below.
			frequency: func(i int) float64 {
				f := plain(100, 8)(i)
				between := func(turns float64) float64 { s := (turns - 1) / 3; return (1-s)*f/8 + s*f }
				return [...]float64{f, between(64 * f / (2 * math.Pi)), between(64 * f / (2 * math.Pi)), f / 8}[i]
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			random := newRandomModel(5, c.change)
			if c.dtype != "" {
				random.dtype = c.dtype
			}
			random.shards = c.shards
			w := random.loadAs(t, c.format)
			m := New(w, Options{PrefillChunk: 50, Threads: 1})
			source := rand.New(rand.NewPCG(8, 8))
			ids := make([]uint32, 70) // more than a block, and more than a chunk
			steps := tier.Of(1, 3)
			for i := range ids {
				ids[i] = source.Uint32N(uint32(m.VocabSize()))
			}
			req := &workerv1.TokenRequest{Prompt: ids, Sampling: &llmv1.Sampling{
				Temperature: new(float32(0)), MaxTokens: new(uint32(3)), IgnoreEos: true,
			}}
			if err := m.Join(1, req); err != nil {
				t.Fatal(err)
			}
			for range steps {
				out := mustStep(t, m, []uint64{1}, nil)
				for len(out) == 0 {
					out = mustStep(t, m, []uint64{1}, nil)
				}
				want, worst := random.reference(w.config, c.frequency, ids), 0.0
				for i, v := range m.lane.logits[:len(want)] { // greedy sampling leaves them unchanged
					worst = max(worst, math.Abs(float64(v)-want[i]))
				}
				if worst > 1e-4 {
					t.Errorf("after %d tokens logits are off by %v", len(ids), worst)
				}
				ids = append(ids, out[0].Token)
			}
		})
	}
}
