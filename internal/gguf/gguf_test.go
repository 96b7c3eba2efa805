package gguf

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A blueprint describes a GGUF file.
type blueprint struct {
	meta    map[string]any // uint32, float32, bool, string, []string or []int32
	tensors []blueTensor
	shift   int64 // of the tensors' offsets, for broken files
	overlap bool  // all tensors are at the beginning, for broken files
}

type blueTensor struct {
	name string
	dims []uint64 // the contiguous dimension first
	kind uint32
	data []byte
}

func text(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// bytes returns the file.
func (p blueprint) bytes() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte("GGUF"), 3)
	b = le.AppendUint64(le.AppendUint64(b, uint64(len(p.tensors))), uint64(len(p.meta)))
	for _, key := range slices.Sorted(maps.Keys(p.meta)) {
		b = text(b, key)
		switch v := p.meta[key].(type) {
		case uint32:
			b = le.AppendUint32(le.AppendUint32(b, 4), v)
		case float32:
			b = le.AppendUint32(le.AppendUint32(b, 6), math.Float32bits(v))
		case bool:
			b = append(le.AppendUint32(b, 7), map[bool]byte{true: 1}[v])
		case string:
			b = text(le.AppendUint32(b, 8), v)
		case []string:
			b = le.AppendUint64(le.AppendUint32(le.AppendUint32(b, 9), 8), uint64(len(v)))
			for _, s := range v {
				b = text(b, s)
			}
		case []int32:
			b = le.AppendUint64(le.AppendUint32(le.AppendUint32(b, 9), 5), uint64(len(v)))
			for _, n := range v {
				b = le.AppendUint32(b, uint32(n))
			}
		}
	}
	var data []byte
	for _, t := range p.tensors {
		b = le.AppendUint32(text(b, t.name), uint32(len(t.dims)))
		for _, n := range t.dims {
			b = le.AppendUint64(b, n)
		}
		at := int64(len(data)) + p.shift
		if p.overlap {
			at = 0
		}
		b = le.AppendUint64(le.AppendUint32(b, t.kind), uint64(at))
		data = append(data, t.data...)
		data = append(data, make([]byte, (32-len(data)%32)%32)...)
	}
	b = append(b, make([]byte, (32-len(b)%32)%32)...)
	return append(b, data...)
}

func (p blueprint) write(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.gguf")
	if err := os.WriteFile(path, p.bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// small returns a complete file with a vocabulary of 4 tokens. change may be nil.
func small(change func(*blueprint)) blueprint {
	p := blueprint{
		meta: map[string]any{
			"general.architecture": "llama", "llama.block_count": uint32(1), "llama.context_length": uint32(64),
			"llama.embedding_length": uint32(32), "llama.feed_forward_length": uint32(32), "llama.attention.head_count": uint32(2),
			"llama.attention.layer_norm_rms_epsilon": float32(1e-5), "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe",
			"tokenizer.ggml.tokens": []string{"a", "b", "ab", "<|eot_id|>"}, "tokenizer.ggml.token_type": []int32{1, 1, 1, 3},
			"tokenizer.ggml.merges": []string{"a b"}, "tokenizer.ggml.bos_token_id": uint32(3), "tokenizer.chat_template": "{{ messages[0].content }}",
		},
		tensors: []blueTensor{
			{"token_embd.weight", []uint64{32, 4}, 8, make([]byte, 4*34)},
			{"blk.0.attn_q.weight", []uint64{32, 32}, 0, numbers(32 * 32)},
			{"blk.0.attn_norm.weight", []uint64{32}, 0, numbers(32)},
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
	path := small(nil).write(t)
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
	path := small(func(p *blueprint) { p.meta["tokenizer.ggml.model"] = "llama" }).write(t)
	dir, err := Directory(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.ReadFile(dir, "tokenizer.json"); !errors.Is(err, ErrTokenizer) || !strings.Contains(err.Error(), `tokenizer "llama" is not supported`) {
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
	dir, err := Directory(small(nil).write(t))
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
	meta := func(key string, value any) func(*blueprint) {
		return func(p *blueprint) { p.meta[key] = value }
	}
	first := func(change func(*blueTensor)) func(*blueprint) {
		return func(p *blueprint) { change(&p.tensors[0]) }
	}
	for want, change := range map[string]func(*blueprint){
		`general.architecture "gemma3" is not supported`: meta("general.architecture", "gemma3"),
		"split into 3 files":                             meta("split.count", uint32(3)),
		"mixture of 8 experts":                           meta("llama.expert_count", uint32(8)),
		"one number for each layer":                      meta("llama.attention.head_count", []int32{2, 4}),
		"attention.head_count is 0":                      meta("llama.attention.head_count", uint32(0)),
		`"blk.0.ffn_gate_inp.weight" is unknown`:         first(func(t *blueTensor) { t.name = "blk.0.ffn_gate_inp.weight" }),
		`"blk.00.attn_q.weight" is unknown`:              first(func(t *blueTensor) { t.name = "blk.00.attn_q.weight" }),
		"appears twice":                                  first(func(t *blueTensor) { t.name = "blk.0.attn_norm.weight" }),
		"the format Q2_K, which is not supported":        first(func(t *blueTensor) { t.kind = 10 }),
		"the format number 99":                           first(func(t *blueTensor) { t.kind = 99 }),
		"rows of 16 numbers, but Q8_0":                   first(func(t *blueTensor) { t.dims = []uint64{16, 8} }),
		"5 dimensions":                                   first(func(t *blueTensor) { t.dims = []uint64{32, 1, 1, 1, 4} }),
		"a dimension of 0":                               first(func(t *blueTensor) { t.dims = []uint64{32, 0} }),
		"the end of the file":                            first(func(t *blueTensor) { t.dims = []uint64{32, 1 << 20} }),
		"not a multiple of 32":                           func(p *blueprint) { p.shift = 1 },
		"overlaps":                                       func(p *blueprint) { p.overlap = true },
		"is at byte":                                     func(p *blueprint) { p.shift = math.MinInt64 },
		"general.alignment is 0":                         meta("general.alignment", uint32(0)),
	} {
		_, err := Directory(small(change).write(t))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "small.gguf") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	whole := small(nil).bytes()
	path := filepath.Join(t.TempDir(), "cut.gguf")
	for n := range len(whole) - 1 {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Directory(path); err == nil {
			t.Fatalf("%d bytes of %d are accepted", n, len(whole))
		}
	}
	for name, change := range map[string]func(*blueprint){
		"config.json":            meta("llama.attention.value_length", uint32(8)),
		"tokenizer.json":         meta("tokenizer.ggml.pre", "tekken"),
		"generation_config.json": func(p *blueprint) { delete(p.meta, "tokenizer.ggml.tokens") },
	} {
		dir, err := Directory(small(change).write(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fs.ReadFile(dir, name); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzFile reads all files of a directory made from any bytes.
func FuzzFile(f *testing.F) {
	f.Add(small(nil).bytes())
	f.Add(small(func(p *blueprint) {
		p.meta["general.architecture"] = "phi3"
		p.tensors = append(p.tensors, blueTensor{ropeFactors, []uint64{8}, 0, numbers(8)})
	}).bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "any.gguf")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		dir, err := Directory(path)
		if err != nil {
			return
		}
		for _, name := range []string{"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"} {
			if b, err := fs.ReadFile(dir, name); err == nil && !json.Valid(b) {
				t.Errorf("%s is %q", name, b)
			}
		}
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
