package besidetest

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// Tokenize answers POST /tokenize for whence-tiny: in the form of vLLM, SGLang and Whence (prompt), and in
// the form of llama.cpp (content).
func Tokenize(rw http.ResponseWriter, r *http.Request) { tokenize(rw, r, Tiny().Encode) }

// TokenizeCharacters is Tokenize of a server that joins no characters, and so splits texts otherwise.
func TokenizeCharacters(rw http.ResponseWriter, r *http.Request) {
	tokenize(rw, r, func(text string, special bool) []uint32 {
		ids := Tiny().Encode("", special)
		for _, c := range text {
			ids = append(ids, Tiny().Encode(string(c), false)...)
		}
		return ids
	})
}

func tokenize(rw http.ResponseWriter, r *http.Request, encode func(text string, special bool) []uint32) {
	asked := struct {
		Prompt, Content *string
		Messages        []struct{ Role, Content string }
		AddSpecial      bool `json:"add_special"`
		Special         bool `json:"add_special_tokens"`
	}{Special: true}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	switch {
	case asked.Prompt != nil:
		ids := encode(*asked.Prompt, asked.Special)
		_ = json.NewEncoder(rw).Encode(map[string]any{"count": len(ids), "max_model_len": Context, "tokens": ids, "token_strs": nil})
	case asked.Content != nil:
		_ = json.NewEncoder(rw).Encode(map[string]any{"tokens": encode(*asked.Content, asked.AddSpecial)})
	case len(asked.Messages) == 1:
		_ = json.NewEncoder(rw).Encode(map[string]any{"tokens": encode(Rendered(asked.Messages[0].Content), false)})
	default:
		http.Error(rw, `{"error":{"message":"no text"}}`, http.StatusBadRequest)
	}
}

// Rendered returns the prompt that the servers of this package make of a user's message.
func Rendered(content string) string {
	return "<|im_start|>user\n" + content + "<|im_end|>\n<|im_start|>assistant\n"
}

// Tiny returns the tokenizer of whence-tiny, whose files the engines under test have.
var Tiny = sync.OnceValue(func() *tokenizer.Tokenizer {
	source, err := tokenizer.Open(whencetiny.FS())
	if err != nil {
		panic(err) // the files are built in
	}
	tok, err := source.Tokenizer()
	if err != nil {
		panic(err)
	}
	return tok
})

// OtherModel returns the files of a model like whence-tiny whose joined tokens have each other's ids.
func OtherModel(t testing.TB) fs.FS {
	t.Helper()
	const name = "tokenizer.json"
	files := fstest.MapFS{}
	for _, file := range []string{name, "tokenizer_config.json", "config.json"} {
		data, err := fs.ReadFile(whencetiny.FS(), file)
		if err != nil {
			t.Fatal(err)
		}
		files[file] = &fstest.MapFile{Data: data}
	}
	var whole, model map[string]json.RawMessage
	var vocab map[string]int
	if err := errors.Join(json.Unmarshal(files[name].Data, &whole), json.Unmarshal(whole["model"], &model), json.Unmarshal(model["vocab"], &vocab)); err != nil {
		t.Fatal(err)
	}
	var joined []string
	for token := range vocab {
		if len([]rune(token)) > 1 {
			joined = append(joined, token)
		}
	}
	slices.Sort(joined)
	for i := range len(joined) / 2 {
		a, b := joined[i], joined[len(joined)-1-i]
		vocab[a], vocab[b] = vocab[b], vocab[a]
	}
	var err error
	if model["vocab"], err = json.Marshal(vocab); err == nil {
		if whole["model"], err = json.Marshal(model); err == nil {
			files[name].Data, err = json.Marshal(whole)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return files
}
