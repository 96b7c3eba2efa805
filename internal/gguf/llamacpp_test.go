package gguf

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/whence-dev/whence/internal/gguf/gguftest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// runnable returns a model of random weights that llama.cpp runs, with the tokenizer that meta describes.
func runnable(meta map[string]any) gguftest.File {
	tokens := len(meta["tokenizer.ggml.tokens"].([]string))
	p := gguftest.File{Meta: map[string]any{
		"general.architecture": "llama", "llama.block_count": uint32(1), "llama.context_length": uint32(256), "llama.embedding_length": uint32(64),
		"llama.feed_forward_length": uint32(64), "llama.attention.head_count": uint32(1), "llama.rope.dimension_count": uint32(64),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5), "llama.vocab_size": uint32(tokens),
	}}
	maps.Copy(p.Meta, meta)
	r := rand.New(rand.NewPCG(1, 2))
	add := func(name string, dims ...uint64) {
		n := 1
		for _, d := range dims {
			n *= int(d)
		}
		data, _ := gguftest.Random(r, gguftest.F32, n, 1)
		p.Tensors = append(p.Tensors, gguftest.Tensor{Name: name, Dims: dims, Data: data})
	}
	add("token_embd.weight", 64, uint64(tokens))
	add("output_norm.weight", 64)
	for _, name := range []string{"attn_norm", "ffn_norm"} {
		add("blk.0."+name+".weight", 64)
	}
	for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"} {
		add("blk.0."+name+".weight", 64, 64)
	}
	return p
}

// byteLevelMeta returns the tokenizer of whence-tiny with another pre-tokenizer.
func byteLevelMeta(t *testing.T, pre string) map[string]any {
	t.Helper()
	m, err := open("../whencetiny/testdata/model-f32.gguf", false)
	if err != nil {
		t.Fatal(err)
	}
	v, err := m.vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	types := make([]int32, len(v.types))
	for i, kind := range v.types {
		types[i] = int32(kind)
	}
	return map[string]any{
		"tokenizer.ggml.model": byteLevel, "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": v.tokens, "tokenizer.ggml.token_type": types,
		"tokenizer.ggml.merges": m.header.meta["tokenizer.ggml.merges"], "tokenizer.ggml.bos_token_id": uint32(1533), "tokenizer.ggml.eos_token_id": uint32(1533),
	}
}

// piecesMeta returns a SentencePiece tokenizer, whose pieces are the texts of the tokens of whence-tiny.
func piecesMeta(t *testing.T, change map[string]any) map[string]any {
	t.Helper()
	dir, err := Directory("../whencetiny/testdata/model-f32.gguf")
	if err != nil {
		t.Fatal(err)
	}
	source, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := source.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	tokens, scores, types := []string{"<unk>", "<s>", "</s>", "<|user|>"}, []float32{0, 0, 0, 0}, []int32{2, controlToken, controlToken, userToken}
	add := func(text string, score float32, kind int32) {
		if !slices.Contains(tokens, text) {
			tokens, scores, types = append(tokens, text), append(scores, score), append(types, kind)
		}
	}
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), 0, byteToken)
	}
	for id := range uint32(1530) {
		if text := tok.Decode([]uint32{id}, false); text != "" && utf8.ValidString(text) && !strings.ContainsRune(text, utf8.RuneError) {
			add(strings.ReplaceAll(text, " ", "▁"), -float32(id), normalToken)
		}
	}
	add("[PAD]", -10000, unusedToken)
	meta := map[string]any{
		"tokenizer.ggml.model": sentencePiece, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": types,
		"tokenizer.ggml.bos_token_id": uint32(1), "tokenizer.ggml.eos_token_id": uint32(2), "tokenizer.ggml.unknown_token_id": uint32(0),
	}
	maps.Copy(meta, change)
	return meta
}

// TestLlamaCPPHasTheSameTokens compares our tokenizers of GGUF files with those of the server itself.
func TestLlamaCPPHasTheSameTokens(t *testing.T) {
	tier.Full(t)
	python := os.Getenv("WHENCE_LLAMACPP")
	if python == "" {
		t.Skip("only scripts/llamacpp runs this test, which installs the server")
	}
	cases := map[string]map[string]any{
		"SentencePiece":                  piecesMeta(t, nil),
		"SentencePiece without a prefix": piecesMeta(t, map[string]any{"tokenizer.ggml.add_space_prefix": false, "tokenizer.ggml.add_bos_token": false}),
	}
	for _, pre := range slices.Concat(slices.Collect(maps.Keys(preTokenizers)), slices.Collect(maps.Keys(samePreTokenizer))) {
		cases[pre] = byteLevelMeta(t, pre)
	}
	for name, meta := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := os.WriteFile(path, runnable(meta).Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			dir, err := Description(path)
			if err != nil {
				t.Fatal(err)
			}
			source, err := tokenizer.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := source.Tokenizer()
			if err != nil {
				t.Fatal(err)
			}
			url := serve(t, python, path)
			file, _ := fs.ReadFile(dir, "tokenizer.json") // SentencePiece has none
			for _, text := range texts() {
				switch {
				case strings.HasPrefix(name, "Sentence") && strings.Contains(text, "[PAD]"):
					continue // an unused token, which llama.cpp finds in a text, and the programs of the model do not
				case bytes.Contains(file, []byte(`"NFC"`)):
					text = strings.ReplaceAll(text, "e\u0301", "") // llama.cpp does not normalize, and the model's programs do
				}
				if got, want := tok.Encode(text, true), tokenize(t, url, text); !slices.Equal(got, want) {
					t.Errorf("%q:\n%v, llama.cpp has\n%v", text, got, want)
				}
			}
		})
	}
}

// serve starts llama.cpp, which ends with the test.
func serve(t *testing.T, python, path string) (url string) {
	t.Helper()
	cmd := exec.Command(python, "../../e2e/upstream/llamacpp.py", path, "256")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			return at
		}
	}
	t.Fatal("llama.cpp has not started")
	return ""
}

func tokenize(t *testing.T, url, text string) []uint32 {
	t.Helper()
	body, err := json.Marshal(map[string]any{"content": text, "add_special": true, "parse_special": true})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url+"/tokenize", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Tokens []uint32 }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	return answer.Tokens
}

// texts returns texts of many scripts, spaces, numbers, punctuation and special tokens, and mixtures of them.
func texts() []string {
	parts := []string{
		"Hello", " world", "I'll", "WE'RE", "don't", "  ", "\n", "\n\n", "\r\n", "\t", " ", "1234567", "3.14", "x2", "$%&", "---", "...", "(a+b)*c", "/usr/bin",
		"你好，世界", "привет Мир", "안녕하세요", "مرحبا", "é", "e\u0301", "🚀🚀", "ﬁ", "ǅungla", "camelCaseHTTPServer", "naïve", "Straße", "\u00a0", "\u200d", "ıİ",
		"</s>", "<s>", "<|user|>", "<|im_end|>", "<|im_start|>", "[PAD]", "<0x41>", "▁", "a", "the end.", "\u3000", "१२३", "Ⅷ", "ª",
	}
	all := slices.Clone(parts)
	r := rand.New(rand.NewPCG(3, 4))
	for range 400 {
		var text strings.Builder
		for range 1 + r.IntN(6) {
			text.WriteString(parts[r.IntN(len(parts))])
		}
		all = append(all, text.String())
	}
	return all
}
