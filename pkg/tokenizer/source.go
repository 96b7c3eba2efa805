package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/whence-dev/whence/internal/modelfile"
	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// The names of tokenizers in the directory of a model. If there are several, the first is read, as
// other programs do.
const (
	jsonFile   = "tokenizer.json"  // the Rust library's
	tekkenFile = "tekken.json"     // Mistral's
	spmFile    = "tokenizer.model" // SentencePiece's, or tiktoken's
)

// Files returns the names of tokenizers that Open reads, most important first.
func Files() []string {
	names := []string{jsonFile, tekkenFile}
	for _, f := range tiktokenFamilies {
		if !slices.Contains(names, f.file) {
			names = append(names, f.file)
		}
	}
	return names
}

// configFile has the added tokens of formats that have none.
const configFile = "tokenizer_config.json"

// A Source is the file of a model's tokenizer, in one of the formats that models have.
type Source struct {
	name string
	file *tokenizerFile
}

// Open reads the tokenizer of a model's directory. Its error wraps fs.ErrNotExist if the directory has
// no tokenizer.
func Open(dir fs.FS) (*Source, error) {
	for _, name := range Files() {
		data, err := modelfile.Read(dir, name, modelfile.MaxTokenizer)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if name == jsonFile {
			return newSource(data)
		}
		config, err := readConfig(dir)
		if err != nil {
			return nil, err
		}
		file, err := convert(name, data, config)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return &Source{name: name, file: file}, nil
	}
	return nil, fmt.Errorf("the directory has none of %s: %w", strings.Join(Files(), ", "), fs.ErrNotExist)
}

// convert reads a file of another format than tokenizer.json.
func convert(name string, data []byte, config *tokenizerConfig) (*tokenizerFile, error) {
	switch {
	case name == tekkenFile:
		return readTekken(data)
	case name == spmFile && !isText(data):
		return readSentencePiece(data, config)
	}
	return readTiktoken(name, data, config)
}

// Tokenizer returns the tokenizer of the file.
func (s *Source) Tokenizer() (*Tokenizer, error) {
	t, err := build(s.file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return t, nil
}

// tokenizerConfig is the part of tokenizer_config.json that other formats need.
type tokenizerConfig struct {
	Class       string                `json:"tokenizer_class"`
	Added       map[uint32]addedToken `json:"added_tokens_decoder"`
	Legacy      *bool                 `json:"legacy"`
	PrefixSpace *bool                 `json:"add_prefix_space"`
	AddBegin    *bool                 `json:"add_bos_token"`
	AddEnd      bool                  `json:"add_eos_token"`
	Begin       configToken           `json:"bos_token"`
	End         configToken           `json:"eos_token"`
}

// A configToken is the text of a token, which may also be an object.
type configToken string

// UnmarshalJSON reads both forms, and null.
func (t *configToken) UnmarshalJSON(data []byte) error {
	var text *string
	if err := json.Unmarshal(data, &text); err == nil {
		if text != nil {
			*t = configToken(*text)
		}
		return nil
	}
	var object struct{ Content string }
	err := json.Unmarshal(data, &object)
	*t = configToken(object.Content)
	return err
}

// readConfig reads tokenizer_config.json, which a directory need not have.
func readConfig(dir fs.FS) (*tokenizerConfig, error) {
	c := new(tokenizerConfig)
	data, err := modelfile.Read(dir, configFile, modelfile.MaxOther)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(data, c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	return c, nil
}

// newByteFile returns a file whose words are those of expression, and whose tokens are bytes. The
// tokens with lower ids are joined first.
func newByteFile(tokens map[uint32]string, expression string, added []addedToken) (*tokenizerFile, error) {
	p, err := pattern.NewTiktoken(expression)
	if err != nil {
		return nil, err
	}
	m := &modelFile{Type: "BPE", Vocab: vocabulary{ids: make(map[string]uint32, len(tokens))}, IgnoreMerges: true}
	var single [256]bool
	top := uint32(0)
	for id, token := range tokens {
		if len(token) == 1 {
			single[token[0]] = true
		}
		spelled := spellBytes(token)
		if other, twice := m.Vocab.ids[spelled]; twice {
			return nil, fmt.Errorf("tokens %d and %d are both %.40q", min(id, other), max(id, other), token)
		}
		m.Vocab.ids[spelled] = id
		top = max(top, id)
	}
	for b, ok := range single {
		if !ok {
			return nil, fmt.Errorf("no token has the byte %#02x alone", b)
		}
	}
	m.ranks = make([]uint32, top+1)
	for id := range m.ranks {
		m.ranks[id] = uint32(id)
	}
	return &tokenizerFile{
		Added: added, Model: m, Decoder: &component{Type: "ByteLevel", raw: json.RawMessage(`{"type":"ByteLevel"}`)},
		conversion: &conversion{words: []preTokenizer{splitter{pattern: p, behavior: isolated}}, pattern: expression, frame: template{{text: true}}, separated: true},
	}, nil
}

// specialToken returns an added token that decoding may skip.
func specialToken(id int, format string, args ...any) addedToken {
	n := uint32(id)
	return addedToken{ID: &n, Content: fmt.Sprintf(format, args...), Special: true}
}

// begin adds ids before every text that is encoded with special tokens.
func (f *tokenizerFile) begin(ids ...uint32) {
	f.conversion.frame = template{{ids: ids}, {text: true}}
}

// isText reports that a file is lines of text, as tiktoken's are.
func isText(data []byte) bool {
	line, _, _ := strings.Cut(string(data[:min(len(data), 1024)]), "\n")
	token, rank, ok := strings.Cut(line, " ")
	return ok && isBase64(token) && strings.Trim(rank, "0123456789\r") == ""
}
