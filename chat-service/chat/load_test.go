package chat_test

import (
	"io/fs"
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
