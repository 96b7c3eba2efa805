package tinyllama

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/matrix"
)

// A randomModel is a model directory under construction.
type randomModel struct {
	config  map[string]any
	tensors map[string]tensor
	dtype   string // F32 unless set
	shards  int    // one file without an index unless set
}

type tensor struct {
	shape  []int
	values []float32
}

// newRandomModel returns a small model with random weights. change, which may be nil, edits its
// config first.
func newRandomModel(seed uint64, change map[string]any) *randomModel {
	m := &randomModel{dtype: "F32", tensors: map[string]tensor{}, config: map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_act": "silu",
		"hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
		"vocab_size": 50, "max_position_embeddings": 300, "rms_norm_eps": 1e-5, "eos_token_id": 49,
	}}
	maps.Copy(m.config, change)
	size := func(key string, otherwise int) int {
		if v, ok := m.config[key].(int); ok {
			return v
		}
		return otherwise
	}
	d, f, heads := size("hidden_size", 0), size("intermediate_size", 0), size("num_attention_heads", 0)
	dim := size("head_dim", d/heads)
	q, kv, vocab := heads*dim, size("num_key_value_heads", heads)*dim, size("vocab_size", 0)

	kind, random := m.config["model_type"], rand.New(rand.NewPCG(seed, 1))
	add := func(name string, scale float64, shape ...int) {
		t := tensor{shape: shape, values: make([]float32, volume(shape))}
		for i := range t.values {
			t.values[i] = float32(random.NormFloat64() * scale)
			if scale == 0 { // a norm
				t.values[i] = float32(1 + random.NormFloat64()/4)
			}
		}
		m.tensors[name] = t
	}
	linear := func(name string, bias any, out, in int) {
		add(name+".weight", 1/math.Sqrt(float64(in)), out, in)
		if bias == true {
			add(name+".bias", 0.5, out)
		}
	}
	add("model.embed_tokens.weight", 1, vocab, d)
	for i := range size("num_hidden_layers", 0) {
		p := fmt.Sprintf("model.layers.%d.", i)
		add(p+"input_layernorm.weight", 0, d)
		bias := m.config["attention_bias"]
		if kind == "qwen2" {
			bias = true
		}
		if kind == "phi3" {
			linear(p+"self_attn.qkv_proj", bias, q+2*kv, d)
		} else {
			linear(p+"self_attn.q_proj", bias, q, d)
			linear(p+"self_attn.k_proj", bias, kv, d)
			linear(p+"self_attn.v_proj", bias, kv, d)
		}
		if kind == "qwen3" {
			add(p+"self_attn.q_norm.weight", 0, dim)
			add(p+"self_attn.k_norm.weight", 0, dim)
		}
		linear(p+"self_attn.o_proj", m.config["attention_bias"], d, q)
		add(p+"post_attention_layernorm.weight", 0, d)
		if kind == "phi3" {
			linear(p+"mlp.gate_up_proj", m.config["mlp_bias"], 2*f, d)
		} else {
			linear(p+"mlp.gate_proj", m.config["mlp_bias"], f, d)
			linear(p+"mlp.up_proj", m.config["mlp_bias"], f, d)
		}
		linear(p+"mlp.down_proj", m.config["mlp_bias"], d, f)
	}
	add("model.norm.weight", 0, d)
	if m.config["tie_word_embeddings"] != true {
		linear("lm_head", nil, vocab, d)
	}
	return m
}

func volume(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// files returns the directory.
func (m *randomModel) files() fstest.MapFS {
	config, err := json.Marshal(m.config)
	if err != nil {
		panic(err)
	}
	out := fstest.MapFS{"config.json": {Data: config}}
	names := slices.Sorted(maps.Keys(m.tensors))
	if m.shards == 0 {
		out["model.safetensors"] = &fstest.MapFile{Data: m.encode(names)}
		return out
	}
	index, files := map[string]string{}, make([][]string, m.shards)
	for i, name := range names {
		files[i%m.shards] = append(files[i%m.shards], name)
	}
	for i, names := range files {
		file := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, m.shards)
		for _, name := range names {
			index[name] = file
		}
		out[file] = &fstest.MapFile{Data: m.encode(names)}
	}
	b, err := json.Marshal(map[string]any{"metadata": map[string]int{}, "weight_map": index})
	if err != nil {
		panic(err)
	}
	out["model.safetensors.index.json"] = &fstest.MapFile{Data: b}
	return out
}

// encode returns one file of weights, and rounds the model's own weights to the precision of the
// file.
func (m *randomModel) encode(names []string) []byte {
	header, data := map[string]any{"__metadata__": map[string]string{"format": "pt"}}, []byte{}
	for _, name := range names {
		t, begin := m.tensors[name], len(data)
		for i, v := range t.values {
			bits := math.Float32bits(v)
			switch m.dtype {
			case "F32":
				data = binary.LittleEndian.AppendUint32(data, bits)
			case "BF16":
				t.values[i] = math.Float32frombits(bits &^ 0xffff)
				data = binary.LittleEndian.AppendUint16(data, uint16(bits>>16))
			case "F16": // only normal numbers of the format
				if v != 0 && math.Abs(float64(v)) < 0x1p-14 {
					v, bits = 0, 0
				}
				t.values[i] = math.Float32frombits(bits &^ 0x1fff)
				half := uint16(bits >> 16 & 0x8000)
				if v != 0 {
					half |= uint16((bits>>23&0xff)-112)<<10 | uint16(bits>>13&0x3ff)
				}
				data = binary.LittleEndian.AppendUint16(data, half)
			}
		}
		header[name] = map[string]any{"dtype": m.dtype, "shape": t.shape, "data_offsets": []int{begin, len(data)}}
	}
	b, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b, data)
}

func (m *randomModel) load(t testing.TB) *Weights {
	t.Helper()
	return m.loadAs(t, Stored)
}

// loadAs loads the model with matrices in a format, and rounds the model's own matrices to it.
func (m *randomModel) loadAs(t testing.TB, format string) *Weights {
	t.Helper()
	w, err := Load(m.files(), LoadOptions{Format: format})
	for _, f := range []matrix.Format{matrix.BF16, matrix.Int8} {
		for _, tensor := range m.tensors {
			if f.String() != format || len(tensor.shape) != 2 {
				continue
			}
			rows, columns := tensor.shape[0], tensor.shape[1]
			kept := matrix.New(f, rows, columns)
			kept.Set(0, tensor.values)
			for i := range rows {
				kept.Row(tensor.values[i*columns:], i)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}
