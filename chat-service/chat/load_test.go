package chat_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/internal/whencetiny"
)

func TestContextLengthIsThatOfTheTextModel(t *testing.T) {
	dir := fstest.MapFS{}
	for _, name := range []string{"tokenizer_config.json", "tokenizer.json"} {
		b, err := fs.ReadFile(whencetiny.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		dir[name] = &fstest.MapFile{Data: b}
	}
	for config, want := range map[string]int{
		`{"max_position_embeddings":4096}`:                                             4096,
		`{"model_type":"mistral3","text_config":{"max_position_embeddings":131072}}`:   131072,
		`{"max_position_embeddings":4096,"text_config":{"max_position_embeddings":7}}`: 4096,
		`{"text_config":{}}`: 0,
		`{"max_position_embeddings":-1,"text_config":{"max_position_embeddings":131072}}`:                  -1,
		`{"text_config":{"max_position_embeddings":131072},"vision_config":{"max_position_embeddings":8}}`: 131072,
	} {
		dir["config.json"] = &fstest.MapFile{Data: []byte(config)}
		m, err := chat.Load(dir, "m", "")
		if want < 0 {
			if err == nil || !strings.Contains(err.Error(), "max_position_embeddings") {
				t.Errorf("%s: %v", config, err)
			}
			continue
		}
		if err != nil || m.ContextLength != want {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// TestTokenizerOfAnyFormat: some families have no tokenizer.json.
func TestTokenizerOfAnyFormat(t *testing.T) {
	config, err := fs.ReadFile(whencetiny.FS(), "tokenizer_config.json")
	if err != nil {
		t.Fatal(err)
	}
	var ranks strings.Builder
	for b := range 256 {
		fmt.Fprintf(&ranks, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(b)}), b)
	}
	dir := fstest.MapFS{
		"config.json":           {Data: []byte(`{"max_position_embeddings":4096}`)},
		"tokenizer_config.json": {Data: config},
		"qwen.tiktoken":         {Data: []byte(ranks.String())},
	}
	m, err := chat.Load(dir, "m", "")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Tokenizer.Encode("a<|im_end|>", false); !slices.Equal(got, []uint32{'a', 1535}) || m.Checksum == "" {
		t.Errorf("%v, checksum %q", got, m.Checksum)
	}
	delete(dir, "qwen.tiktoken")
	if _, err := chat.Load(dir, "m", ""); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
