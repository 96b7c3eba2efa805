package gguf

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/gguf/gguftest"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// asJSON returns the metadata of a GGUF file as another program has them.
func asJSON(t *testing.T, path string) map[string]json.RawMessage {
	t.Helper()
	m, err := open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]json.RawMessage{}
	for key, value := range m.header.meta {
		if list, ok := value.(numberList); ok {
			if value, ok = list.ints(); !ok {
				value, _ = list.floats()
			}
		}
		if all[key], err = json.Marshal(value); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestMetadataOfOthersGiveTheSameFiles(t *testing.T) {
	const path = "../whencetiny/testdata/model-f32.gguf"
	metadata := asJSON(t, path)
	metadata["general.other"] = json.RawMessage(`{"a":[null]}`)
	metadata["general.none"] = json.RawMessage(`null`)
	theirs, err := FromMetadata(metadata)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := Description(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		got, err := fs.ReadFile(theirs, name)
		want, err2 := fs.ReadFile(ours, name)
		if err != nil || err2 != nil || string(got) != string(want) {
			t.Errorf("%s: %.200s, want %.200s: %v, %v", name, got, want, err, err2)
		}
	}
	for _, name := range []string{"model.safetensors", "tokenizer.model", "chat_template.jinja"} {
		if _, err := fs.ReadFile(theirs, name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, want := range map[string]string{
		`{"tokenizer.ggml.tokens":[]}`:          "no tokenizer.ggml.tokens",
		`{"tokenizer.ggml.tokens":null}`:        "no tokenizer.ggml.tokens",
		`{"tokenizer.ggml.tokens":["a",1]}`:     "neither texts nor numbers",
		`{"tokenizer.ggml.tokens":[[1]]}`:       "neither texts nor numbers",
		`{"tokenizer.ggml.bos_token_id":1e999}`: "tokenizer.ggml.bos_token_id",
	} {
		var metadata map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &metadata); err != nil {
			t.Fatal(err)
		}
		if _, err := FromMetadata(metadata); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestDescriptionNeedsNoWeights: a server runs architectures and formats that the embedded engine does
// not.
func TestDescriptionNeedsNoWeights(t *testing.T) {
	path := write(t, small(func(p *gguftest.File) {
		p.Meta["general.architecture"], p.Meta["qwen3moe.context_length"], p.Meta["qwen3moe.expert_count"] = "qwen3moe", uint32(4096), uint32(8)
		p.Tensors[0].Kind = 39
	}))
	if _, err := Directory(path); err == nil {
		t.Error("the embedded engine can read it")
	}
	dir, err := Description(path)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := fs.ReadFile(dir, "config.json"); string(b) != `{"max_position_embeddings":4096,"model_type":"qwen3moe","vocab_size":4}` {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := tokenizer.Open(dir); err != nil {
		t.Error(err)
	}
	if _, err := dir.Open("model.safetensors"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// pieces is a file with a SentencePiece tokenizer.
func pieces(change map[string]any) func(*gguftest.File) {
	return func(p *gguftest.File) {
		p.Meta["tokenizer.ggml.model"] = "llama"
		p.Meta["tokenizer.ggml.tokens"] = []string{"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "aa", "▁a", "never", "|", "aab", "<0x63>"}
		p.Meta["tokenizer.ggml.scores"] = []float32{0, 0, 0, -9, -9, -9, -2, -2, -3, -1, 0, 0, 0}
		p.Meta["tokenizer.ggml.token_type"] = []int32{2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 4, 5, 6}
		p.Meta["tokenizer.ggml.bos_token_id"], p.Meta["tokenizer.ggml.eos_token_id"] = uint32(1), uint32(2)
		for key, value := range change {
			p.Meta[key] = value
		}
	}
}

func TestSentencePieceOfAFile(t *testing.T) {
	for _, test := range []struct {
		change map[string]any
		text   string
		want   []uint32
	}{
		{nil, "b aab", []uint32{1, 3, 5, 3, 7, 5}}, // aab is unused
		{nil, "a|a", []uint32{1, 8, 10, 8}},        // as behind a control token
		{nil, "a</s>b", []uint32{1, 8, 2, 3, 5}},
		{nil, "  a", []uint32{1, 3, 3, 8}},
		{nil, "ca", []uint32{1, 3, 12, 4}},
		{map[string]any{"tokenizer.ggml.add_bos_token": false, "tokenizer.ggml.add_eos_token": true}, "a", []uint32{8, 2}},
		{map[string]any{"tokenizer.ggml.add_space_prefix": false}, "a", []uint32{1, 4}},
		{map[string]any{"tokenizer.ggml.remove_extra_whitespaces": true}, "  a ", []uint32{1, 8}},
	} {
		dir, err := Directory(write(t, small(pieces(test.change))))
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
		if got := tok.Encode(test.text, true); !slices.Equal(got, test.want) {
			t.Errorf("%v %q: %v, want %v", test.change, test.text, got, test.want)
		}
	}
}
