package paced

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// Model is the name of the model that an Engine serves. It has the tokenizer and the chat template
// of whence-tiny, and one more token for each text of the clock. No prompt contains these tokens,
// because no merge produces them.
const Model = "paced"

// ContextLength of the model, in tokens.
const ContextLength = 1 << 22

// firstClock is the id of the first token of the clock, after those of whence-tiny.
const firstClock = 1536

// space is how byte-level vocabularies write a space.
const space = "Ġ"

// files returns the model's directory: the names and contents of its files.
var files = sync.OnceValues(func() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range []string{"tokenizer_config.json", "generation_config.json"} {
		b, err := fs.ReadFile(whencetiny.FS(), name)
		if err != nil {
			return nil, err
		}
		out[name] = b
	}
	err := edit(out, "config.json", func(config map[string]any) error {
		config["max_position_embeddings"] = ContextLength
		config["vocab_size"] = firstClock + Ticks
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = edit(out, "tokenizer.json", func(tok map[string]any) error {
		model, _ := tok["model"].(map[string]any)
		vocabulary, _ := model["vocab"].(map[string]any)
		if len(vocabulary) == 0 || len(vocabulary) > firstClock {
			return fmt.Errorf("whence-tiny has %d tokens; the clock begins at %d", len(vocabulary), firstClock)
		}
		for i := range Ticks {
			vocabulary[space+string(appendText(nil, int64(i))[1:])] = firstClock + i
		}
		return nil
	})
	return out, err
})

// edit stores a changed JSON file of whence-tiny in out.
func edit(out map[string][]byte, name string, change func(map[string]any) error) error {
	b, err := fs.ReadFile(whencetiny.FS(), name)
	if err != nil {
		return err
	}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := change(v); err != nil {
		return err
	}
	out[name], err = json.Marshal(v)
	return err
}

// WriteModel writes the model to a directory, for chat-service --model.
func WriteModel(dir string) error {
	all, err := files()
	if err != nil {
		return err
	}
	for name, b := range all {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// checksum returns the checksum of the model's tokenizer, or "" if there is none, which
// chat-service accepts with a warning.
var checksum = sync.OnceValue(func() string {
	all, err := files()
	if err != nil {
		return ""
	}
	sum, err := tokenizer.Checksum(all["tokenizer.json"])
	if err != nil {
		return ""
	}
	return sum
})
