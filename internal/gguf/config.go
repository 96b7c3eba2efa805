package gguf

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
)

// A family describes how an architecture of GGUF relates to Hugging Face's.
type family struct {
	class       string // of "architectures" in config.json
	modelType   string
	interleaved bool // llama.cpp has interleaved the two halves of each head of q and k
	fused       bool // one tensor holds gate and up

	prefix  string // of the metadata
	heads   int
	kvHeads int
}

// families are the supported values of general.architecture.
var families = map[string]family{
	"llama": {class: "LlamaForCausalLM", modelType: "llama", interleaved: true},
	"qwen2": {class: "Qwen2ForCausalLM", modelType: "qwen2"},
	"qwen3": {class: "Qwen3ForCausalLM", modelType: "qwen3"},
	"phi3":  {class: "Phi3ForCausalLM", modelType: "phi3", fused: true},
}

// family returns the family of the file's architecture, or an error that names the unsupported
// feature.
func (h *header) family() (family, error) {
	name := h.text("general.architecture")
	f, ok := families[name]
	if !ok {
		return f, fmt.Errorf("general.architecture %.64q is not supported; llama, qwen2, qwen3 and phi3 are", name)
	}
	f.prefix = name + "."
	if n := h.number("split.count", 1); n > 1 {
		return f, fmt.Errorf("the model is split into %v files: join them with llama-gguf-split --merge", n)
	}
	if n := h.number(f.prefix+"expert_count", 0); n > 0 {
		return f, fmt.Errorf("the model is a mixture of %v experts, which is not supported", n)
	}
	var err error
	if f.heads, err = h.size(f.prefix + "attention.head_count"); err != nil {
		return f, err
	}
	f.kvHeads = f.heads
	if _, ok := h.meta[f.prefix+"attention.head_count_kv"]; ok {
		f.kvHeads, err = h.size(f.prefix + "attention.head_count_kv")
	}
	return f, err
}

// size returns a positive integer of the metadata. A list, one size for each layer, is refused.
func (h *header) size(key string) (int, error) {
	switch v := h.meta[key].(type) {
	case uint64:
		if v >= 1 && v <= maxDim {
			return int(v), nil
		}
	case int64:
		if v >= 1 && v <= maxDim {
			return int(v), nil
		}
	case nil:
		return 0, fmt.Errorf("the metadata have no %s", key)
	case numberList:
		return 0, fmt.Errorf("%s is a list, one number for each layer, which is not supported", key)
	}
	return 0, fmt.Errorf("%s is %.64s; it must be a number from 1 to %d", key, fmt.Sprint(h.meta[key]), maxDim)
}

// config makes config.json.
func (m *model) config() ([]byte, error) {
	h, prefix := m.header, m.family.prefix
	embedding := h.tensor("token_embd.weight")
	if embedding == nil || len(embedding.shape) != 2 {
		return nil, errors.New("the tensor token_embd.weight is missing")
	}
	c := map[string]any{
		"architectures": []string{m.family.class}, "model_type": m.family.modelType, "hidden_act": "silu",
		"num_attention_heads": m.family.heads, "num_key_value_heads": m.family.kvHeads, "vocab_size": embedding.shape[0],
		"tie_word_embeddings": h.tensor("output.weight") == nil,
		"attention_bias":      h.tensor("blk.0.attn_q.bias") != nil,
		"mlp_bias":            h.tensor("blk.0.ffn_gate.bias") != nil,
	}
	for field, number := range map[string]struct {
		key       string
		otherwise float64
	}{"rms_norm_eps": {"attention.layer_norm_rms_epsilon", 1e-5}, "rope_theta": {"rope.freq_base", 10000}} {
		v, err := h.finite(prefix+number.key, number.otherwise)
		if err != nil {
			return nil, err
		}
		c[field] = v
	}
	for field, key := range map[string]string{
		"hidden_size": "embedding_length", "intermediate_size": "feed_forward_length", "num_hidden_layers": "block_count",
		"max_position_embeddings": "context_length",
	} {
		n, err := h.size(prefix + key)
		if err != nil {
			return nil, err
		}
		c[field] = n
	}
	dim := h.number(prefix+"attention.key_length", math.Floor(h.number(prefix+"embedding_length", 0)/float64(m.family.heads)))
	if values := h.number(prefix+"attention.value_length", dim); values != dim || !(dim >= 1 && dim <= maxDim) || dim != math.Trunc(dim) {
		return nil, fmt.Errorf("heads have keys of %v and values of %v numbers, which is not supported", dim, values)
	}
	turned, err := h.finite(prefix+"rope.dimension_count", dim)
	if err != nil {
		return nil, err
	}
	c["head_dim"], c["partial_rotary_factor"] = int(dim), turned/dim
	switch window := h.number(prefix+"attention.sliding_window", 0); {
	case window > maxDim || math.IsNaN(window):
		return nil, fmt.Errorf("%sattention.sliding_window is %v", prefix, window)
	case window > 0:
		c["sliding_window"], c["use_sliding_window"] = int(window), true
		if m.family.modelType == "llama" {
			c["architectures"], c["model_type"] = []string{"MistralForCausalLM"}, "mistral"
		}
	}
	scaling, err := m.scaling()
	if err != nil {
		return nil, err
	}
	if scaling != nil {
		c["rope_scaling"] = scaling
	}
	return json.Marshal(c)
}

// scaling returns how the frequencies of RoPE are scaled, or nil.
func (m *model) scaling() (map[string]any, error) {
	h, prefix := m.header, m.family.prefix
	kind := h.text(prefix + "rope.scaling.type")
	if t := h.tensor(ropeFactors); t != nil {
		factors, err := m.floats(t)
		if err != nil {
			return nil, err
		}
		return map[string]any{"rope_type": "factors", "factors": factors}, nil
	}
	old := h.number(prefix+"rope.scale_linear", 1) // of files from before rope.scaling
	factor, err := h.finite(prefix+"rope.scaling.factor", old)
	switch {
	case err != nil:
		return nil, err
	case kind == "none" || kind == "" && (factor == 0 || factor == 1):
		return nil, nil
	case kind == "":
		kind = "linear" // as llama.cpp
	}
	return map[string]any{"rope_type": kind, "factor": factor}, nil
}

// floats reads a short vector of F32.
func (m *model) floats(t *tensor) ([]float32, error) {
	if t.format.name != "F32" || len(t.shape) != 1 || t.shape[0] > 1<<10 {
		return nil, fmt.Errorf("tensor %q is not a short vector of F32", t.name)
	}
	f, err := os.Open(m.path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	b := make([]byte, t.size)
	if _, err := f.ReadAt(b, t.offset); err != nil {
		return nil, fmt.Errorf("read tensor %q: %w", t.name, err)
	}
	values := make([]float32, t.shape[0])
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		if v := float64(values[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("tensor %q has the value %v", t.name, v)
		}
	}
	return values, nil
}
