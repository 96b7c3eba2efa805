package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// A shape is the size of a Qwen2 model.
type shape struct{ hidden, feedForward, layers, heads, kvHeads, vocab, context int }

var qwen = shape{hidden: 896, feedForward: 4864, layers: 24, heads: 14, kvHeads: 2, vocab: 151936, context: 8192}

func (s shape) headDim() int { return s.hidden / s.heads }

// A matrix is a tensor in both formats.
type matrix struct {
	hf, gguf string
	rows     int     // 1 for a vector
	columns  int     //
	centre   float32 // of the values
	scale    float32 // of the values: they are uniform within centre ± scale
}

// tensors lists the tensors of a model. Each result of a matrix has about the size of its operand.
func (s shape) tensors() []matrix {
	weights := func(hf, gguf string, rows, columns int) matrix {
		return matrix{hf + ".weight", gguf + ".weight", rows, columns, 0, float32(math.Sqrt(3 / float64(columns)))}
	}
	norm := func(hf, gguf string) matrix { return matrix{hf + ".weight", gguf + ".weight", 1, s.hidden, 1, 0.1} }
	bias := func(hf, gguf string, columns int) matrix {
		return matrix{hf + ".bias", gguf + ".bias", 1, columns, 0, 0.1}
	}
	kv := s.kvHeads * s.headDim()
	all := []matrix{weights("model.embed_tokens", "token_embd", s.vocab, s.hidden), norm("model.norm", "output_norm")}
	for i := range s.layers {
		hf, gguf := fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("blk.%d.", i)
		all = append(all,
			norm(hf+"input_layernorm", gguf+"attn_norm"), norm(hf+"post_attention_layernorm", gguf+"ffn_norm"),
			weights(hf+"self_attn.q_proj", gguf+"attn_q", s.hidden, s.hidden), bias(hf+"self_attn.q_proj", gguf+"attn_q", s.hidden),
			weights(hf+"self_attn.k_proj", gguf+"attn_k", kv, s.hidden), bias(hf+"self_attn.k_proj", gguf+"attn_k", kv),
			weights(hf+"self_attn.v_proj", gguf+"attn_v", kv, s.hidden), bias(hf+"self_attn.v_proj", gguf+"attn_v", kv),
			weights(hf+"self_attn.o_proj", gguf+"attn_output", s.hidden, s.hidden),
			weights(hf+"mlp.gate_proj", gguf+"ffn_gate", s.feedForward, s.hidden),
			weights(hf+"mlp.up_proj", gguf+"ffn_up", s.feedForward, s.hidden),
			weights(hf+"mlp.down_proj", gguf+"ffn_down", s.hidden, s.feedForward))
	}
	return all
}

// values calls use with each row of m. They depend only on the index of m.
func (m matrix) values(index int, use func(row []float32) error) error {
	random, row := rand.NewPCG(1, uint64(index)), make([]float32, m.columns)
	for range m.rows {
		for i := 0; i < len(row); i += 4 {
			bits := random.Uint64() // four numbers of 16 bits
			for j := range min(4, len(row)-i) {
				v := m.centre + m.scale*float32(int16(bits>>(16*j)))/(1<<15)
				row[i+j] = math.Float32frombits(math.Float32bits(v) &^ 0xffff) // a bfloat16
			}
		}
		if err := use(row); err != nil {
			return err
		}
	}
	return nil
}

// write writes the model twice: as a Hugging Face directory in bfloat16, and as a GGUF file in Q8_0.
func write(s shape, dir, gguf string) error {
	config, err := json.Marshal(map[string]any{
		"architectures": []string{"Qwen2ForCausalLM"}, "model_type": "qwen2", "hidden_size": s.hidden, "intermediate_size": s.feedForward,
		"num_hidden_layers": s.layers, "num_attention_heads": s.heads, "num_key_value_heads": s.kvHeads, "vocab_size": s.vocab,
		"max_position_embeddings": s.context, "rms_norm_eps": epsilon, "rope_theta": theta, "tie_word_embeddings": true,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		return err
	}
	if err := create(filepath.Join(dir, "model.safetensors"), s.safetensors); err != nil {
		return err
	}
	return create(gguf, s.gguf)
}

const (
	epsilon = 1e-6
	theta   = 1e6
)

// create writes a file.
func create(path string, fill func(io.Writer) error) error {
	f, err := os.Create(path) //nolint:gosec // in a temporary directory
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	if err = fill(b); err == nil {
		err = b.Flush()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}

func (s shape) safetensors(w io.Writer) error {
	header, end := map[string]any{}, 0
	all := s.tensors()
	for _, m := range all {
		dims := []int{m.rows, m.columns}
		if m.rows == 1 {
			dims = dims[1:]
		}
		begin := end
		end += 2 * m.rows * m.columns
		header[m.hf] = map[string]any{"dtype": "BF16", "shape": dims, "data_offsets": []int{begin, end}}
	}
	b, err := json.Marshal(header)
	if err != nil {
		return err
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...)); err != nil {
		return err
	}
	var bytes []byte
	for i, m := range all {
		if err := m.values(i, func(row []float32) error {
			bytes = bytes[:0]
			for _, v := range row {
				bytes = binary.LittleEndian.AppendUint16(bytes, uint16(math.Float32bits(v)>>16))
			}
			_, err := w.Write(bytes)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
