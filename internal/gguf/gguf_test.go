package gguf

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/gguf/gguftest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

func write(t testing.TB, p gguftest.File) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.gguf")
	if err := os.WriteFile(path, p.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// small returns a complete file with a vocabulary of 4 tokens. change may be nil.
func small(change func(*gguftest.File)) gguftest.File {
	p := gguftest.File{
		Meta: map[string]any{
			"general.architecture": "llama", "llama.block_count": uint32(1), "llama.context_length": uint32(64),
			"llama.embedding_length": uint32(32), "llama.feed_forward_length": uint32(32), "llama.attention.head_count": uint32(2),
			"llama.attention.layer_norm_rms_epsilon": float32(1e-5), "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe",
			"tokenizer.ggml.tokens": []string{"a", "b", "ab", "<|eot_id|>"}, "tokenizer.ggml.token_type": []int32{1, 1, 1, 3},
			"tokenizer.ggml.merges": []string{"a b"}, "tokenizer.ggml.bos_token_id": uint32(3), "tokenizer.chat_template": "{{ messages[0].content }}",
		},
		Tensors: []gguftest.Tensor{
			{Name: "token_embd.weight", Dims: []uint64{32, 4}, Kind: gguftest.Q80, Data: make([]byte, 4*34)},
			{Name: "blk.0.attn_q.weight", Dims: []uint64{32, 32}, Data: numbers(32 * 32)},
			{Name: "blk.0.attn_norm.weight", Dims: []uint64{32}, Data: numbers(32)},
		},
	}
	if change != nil {
		change(&p)
	}
	return p
}

// numbers returns 0, 1, 2 ... as F32.
func numbers(n int) (b []byte) {
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(i)))
	}
	return b
}

func TestBlocksAreDecodedLikeGGML(t *testing.T) {
	var goldens []struct {
		Format, Blocks, Values string
		Kind                   uint32
	}
	b, err := os.ReadFile("testdata/blocks.json")
	if err == nil {
		err = json.Unmarshal(b, &goldens)
	}
	if err != nil || len(goldens) != 6 {
		t.Fatal(len(goldens), err)
	}
	for _, g := range goldens {
		f, ok := formats[g.Kind]
		if !ok || f.name != g.Format {
			t.Fatalf("format %d is %q, want %q", g.Kind, f.name, g.Format)
		}
		blocks, err := base64.StdEncoding.DecodeString(g.Blocks)
		if err != nil {
			t.Fatal(err)
		}
		want, err := base64.StdEncoding.DecodeString(g.Values)
		if err != nil || len(want)/4/f.elements*f.bytes != len(blocks) {
			t.Fatal(len(want), len(blocks), err)
		}
		var got []byte
		values := make([]float32, f.elements)
		for ; len(blocks) > 0; blocks = blocks[f.bytes:] {
			f.decode(values, blocks)
			for _, v := range values {
				got = binary.LittleEndian.AppendUint32(got, math.Float32bits(v))
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the values differ from ggml's", f.name)
		}
	}
}

func TestSmallFileIsADirectory(t *testing.T) {
	path := write(t, small(nil))
	if Name(path) != "small" || Name("/models/Qwen") != "Qwen" {
		t.Error(Name(path), Name("/models/Qwen"))
	}
	dir, err := Directory(path)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Architectures []string
		Heads         int  `json:"num_key_value_heads"`
		Dim           int  `json:"head_dim"`
		Tied          bool `json:"tie_word_embeddings"`
	}
	var generation struct {
		EOS []int `json:"eos_token_id"`
	}
	var prompt struct {
		Template string `json:"chat_template"`
		BOS      string `json:"bos_token"`
	}
	for name, into := range map[string]any{"config.json": &config, "generation_config.json": &generation, "tokenizer_config.json": &prompt} {
		b, err := fs.ReadFile(dir, name)
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if config.Architectures[0] != "LlamaForCausalLM" || config.Heads != 2 || config.Dim != 16 || !config.Tied {
		t.Error(config)
	}
	if !slices.Equal(generation.EOS, []int{3}) || prompt.Template != "{{ messages[0].content }}" || prompt.BOS != "<|eot_id|>" {
		t.Error(generation, prompt)
	}
	if _, err := fs.ReadFile(dir, "other.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	b, err := fs.ReadFile(dir, "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	// llama-bpe begins each text with the BOS.
	if ids := tok.Encode("ab<|eot_id|>a", true); !slices.Equal(ids, []uint32{3, 2, 3, 0}) {
		t.Error(ids)
	}
}

func TestFilesBesideTakePrecedence(t *testing.T) {
	path := write(t, small(func(p *gguftest.File) { p.Meta["tokenizer.ggml.model"] = "bert" }))
	dir, err := Directory(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.ReadFile(dir, "tokenizer.json"); !errors.Is(err, ErrTokenizer) || !strings.Contains(err.Error(), `tokenizer "bert" is not supported`) {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "tokenizer.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := fs.ReadFile(dir, "tokenizer.json"); err != nil || string(b) != "{}" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestHalvesOfHeadsAreSeparated reads a matrix of two heads whose numbers tell their place in the file.
func TestHalvesOfHeadsAreSeparated(t *testing.T) {
	dir, err := Directory(write(t, small(nil)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := dir.Open("model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != int64(len(b)) {
		t.Errorf("%d bytes were read of %v, %v", len(b), info, err)
	}
	var tensors map[string]struct {
		Shape   []int
		Offsets []int `json:"data_offsets"`
	}
	length := binary.LittleEndian.Uint64(b)
	if err := json.Unmarshal(b[8:8+length], &tensors); err != nil {
		t.Fatal(err)
	}
	q := tensors["model.layers.0.self_attn.q_proj.weight"]
	data := b[8+length:][q.Offsets[0]:q.Offsets[1]]
	for row := range 32 {
		got := math.Float32frombits(binary.LittleEndian.Uint32(data[row*32*4:])) / 32
		head, at := row/16, row%16
		if want := head*16 + 2*(at%8) + at/8; int(got) != want {
			t.Errorf("row %d is the file's row %v, want %d", row, got, want)
		}
	}
	if norm := tensors["model.layers.0.input_layernorm.weight"]; !slices.Equal(norm.Shape, []int{32}) {
		t.Error(norm)
	}
}

func TestWhenceTinyHasTheSameTokens(t *testing.T) {
	dir, err := Directory("../whencetiny/testdata/model-f32.gguf")
	if err != nil {
		t.Fatal(err)
	}
	var both [2]*tokenizer.Tokenizer
	for i, dir := range []fs.FS{dir, whencetiny.FS()} {
		b, err := fs.ReadFile(dir, "tokenizer.json")
		if err != nil {
			t.Fatal(err)
		}
		if both[i], err = tokenizer.Load(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []string{"What is Whence?", "<|im_start|>user\nCount to 40, 你好!  \n\n<|im_end|>", "I'll say \"it's 1234\"\tnow 🚀"} {
		if got, want := both[0].Encode(s, true), both[1].Encode(s, true); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

func TestBadFilesAreRefusedByName(t *testing.T) {
	meta := func(key string, value any) func(*gguftest.File) {
		return func(p *gguftest.File) { p.Meta[key] = value }
	}
	first := func(change func(*gguftest.Tensor)) func(*gguftest.File) {
		return func(p *gguftest.File) { change(&p.Tensors[0]) }
	}
	for want, change := range map[string]func(*gguftest.File){
		`general.architecture "gemma3" is not supported`: meta("general.architecture", "gemma3"),
		"split into 3 files":                             meta("split.count", uint32(3)),
		"mixture of 8 experts":                           meta("llama.expert_count", uint32(8)),
		"one number for each layer":                      meta("llama.attention.head_count", []int32{2, 4}),
		"attention.head_count is 0":                      meta("llama.attention.head_count", uint32(0)),
		`"blk.0.ffn_gate_inp.weight" is unknown`:         first(func(t *gguftest.Tensor) { t.Name = "blk.0.ffn_gate_inp.weight" }),
		`"blk.00.attn_q.weight" is unknown`:              first(func(t *gguftest.Tensor) { t.Name = "blk.00.attn_q.weight" }),
		"appears twice":                                  first(func(t *gguftest.Tensor) { t.Name = "blk.0.attn_norm.weight" }),
		"the format Q2_K, which is not supported":        first(func(t *gguftest.Tensor) { t.Kind = 10 }),
		"the format number 99":                           first(func(t *gguftest.Tensor) { t.Kind = 99 }),
		"rows of 16 numbers, but Q8_0":                   first(func(t *gguftest.Tensor) { t.Dims = []uint64{16, 8} }),
		"5 dimensions":                                   first(func(t *gguftest.Tensor) { t.Dims = []uint64{32, 1, 1, 1, 4} }),
		"a dimension of 0":                               first(func(t *gguftest.Tensor) { t.Dims = []uint64{32, 0} }),
		"the end of the file":                            first(func(t *gguftest.Tensor) { t.Dims = []uint64{32, 1 << 20} }),
		"not a multiple of 32":                           func(p *gguftest.File) { p.Shift = 1 },
		"overlaps":                                       func(p *gguftest.File) { p.Overlap = true },
		"is at byte":                                     func(p *gguftest.File) { p.Shift = math.MinInt64 },
		"general.alignment is 0":                         meta("general.alignment", uint32(0)),
		`attention.head_count is text; it must be`:       meta("llama.attention.head_count", "text"),
	} {
		_, err := Directory(write(t, small(change)))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "small.gguf") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	whole := small(nil).Bytes()
	path := filepath.Join(t.TempDir(), "cut.gguf")
	step := 7 // writing a file for each of the sizes takes ten seconds
	if tier.IsFull() {
		step = 1
	}
	for n := 0; n < len(whole)-1; n += step {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Directory(path); err == nil {
			t.Fatalf("%d bytes of %d are accepted", n, len(whole))
		}
	}
	nan, huge := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		name, says string
		change     func(*gguftest.File)
	}{
		{"config.json", "keys of 16 and values of 8", meta("llama.attention.value_length", uint32(8))},
		{"config.json", "keys of NaN", meta("llama.attention.key_length", nan)},
		{"config.json", "keys of 0 and", meta("llama.attention.key_length", uint32(0))},
		{"config.json", "keys of 2.5 and", meta("llama.attention.key_length", float32(2.5))},
		{"config.json", "layer_norm_rms_epsilon is NaN", meta("llama.attention.layer_norm_rms_epsilon", nan)},
		{"config.json", "rope.freq_base is +Inf", meta("llama.rope.freq_base", huge)},
		{"config.json", "rope.dimension_count is NaN", meta("llama.rope.dimension_count", nan)},
		{"config.json", "rope.scaling.factor is +Inf", meta("llama.rope.scaling.factor", huge)},
		{"config.json", "sliding_window is +Inf", meta("llama.attention.sliding_window", huge)},
		{"config.json", "llama.block_count is a list", meta("llama.block_count", []int32{1, 2})},
		{"tokenizer.json", `pre-tokenizer "viking"`, meta("tokenizer.ggml.pre", "viking")},
		{"tokenizer.json", "4 tokens and 3 types", meta("tokenizer.ggml.token_type", []int32{1, 1, 1})},
		{"tokenizer.json", "4 tokens and 0 types", meta("tokenizer.ggml.token_type", []float32{1, 1, 1, 3})},
		{"tokenizer.model", "4 tokens and 0 scores", meta("tokenizer.ggml.model", "llama")},
		{"tokenizer.model", "4 tokens and 1 scores", func(p *gguftest.File) {
			p.Meta["tokenizer.ggml.model"], p.Meta["tokenizer.ggml.scores"] = "llama", []float32{1}
		}},
		{"generation_config.json", "no tokenizer.ggml.tokens", func(p *gguftest.File) { delete(p.Meta, "tokenizer.ggml.tokens") }},
	} {
		dir, err := Directory(write(t, small(c.change)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fs.ReadFile(dir, c.name); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

// A list of small numbers took 16 times its bytes.
func TestListsTakeNoMoreMemoryThanInTheFile(t *testing.T) {
	const n = 1 << 20
	path := write(t, small(func(p *gguftest.File) { p.Meta["tokenizer.ggml.scores"] = make([]float32, n) }))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Directory(path); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 2*4*n {
		t.Errorf("a list of %d bytes took %d bytes", 4*n, took)
	}
}

func TestLinearScalingOfOldFilesIsKept(t *testing.T) {
	for key, value := range map[string]any{"llama.rope.scale_linear": float32(4), "llama.rope.scaling.factor": float32(4)} {
		dir, err := Directory(write(t, small(func(p *gguftest.File) { p.Meta[key] = value })))
		if err != nil {
			t.Fatal(err)
		}
		b, err := fs.ReadFile(dir, "config.json")
		if err != nil || !strings.Contains(string(b), `"rope_scaling":{"factor":4,"rope_type":"linear"}`) {
			t.Errorf("%s: %s, %v", key, b, err)
		}
	}
}
