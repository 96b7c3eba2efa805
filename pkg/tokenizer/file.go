package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// maxID is the largest id that a file may contain. Tables are as long as the largest id, so a
// broken file must not contain an arbitrary id. The largest vocabularies today have about 262,000
// tokens.
const maxID = 1<<22 - 1

// tokenizerFile is the part of tokenizer.json that is read.
type tokenizerFile struct {
	Version       string
	Added         []addedToken `json:"added_tokens"`
	Normalizer    *component
	PreTokenizer  *component `json:"pre_tokenizer"`
	PostProcessor *component `json:"post_processor"`
	Decoder       *component
	Model         *modelFile

	conversion *conversion // nil for a tokenizer.json
}

// A conversion is what a file of another format has instead of components.
type conversion struct {
	normalize normalizer     // instead of Normalizer
	words     []preTokenizer // instead of PreTokenizer, and the words are bytes
	pattern   string         // what the fields above mean, for the checksum
	model     model          // instead of Model
	users     *addedMatcher  // tokens of normalized text
	frame     template       // instead of PostProcessor
	separated bool           // an added token may have the spelling of another token of the vocabulary
}

// modelFile is the model section.
type modelFile struct {
	Type          string
	Vocab         vocabulary
	Merges        mergeList
	Dropout       *float64
	UnkToken      string `json:"unk_token"`
	SubwordPrefix string `json:"continuing_subword_prefix"`
	WordSuffix    string `json:"end_of_word_suffix"`
	FuseUnk       bool   `json:"fuse_unk"`
	ByteFallback  bool   `json:"byte_fallback"`
	IgnoreMerges  bool   `json:"ignore_merges"`
	UnkID         *int   `json:"unk_id"`
	MaxChars      *int   `json:"max_input_chars_per_word"`

	ranks []uint32 // instead of Merges, in files of other formats
}

// build makes the model. byteLevel reports that its words are bytes.
func (f *modelFile) build(byteLevel bool) (model, error) {
	scored := f.Type == "Unigram"
	switch {
	case f.Type == "Unigram" || f.Type == "WordPiece":
	case f.Type != "BPE" && (f.Type != "" || f.Merges == nil): // old files omit the type
		return nil, fmt.Errorf("type %q is not supported", f.Type)
	}
	switch {
	case f.Vocab.ids == nil:
		return nil, errors.New("no vocabulary")
	case scored != (f.Vocab.scored != nil):
		return nil, fmt.Errorf("the vocabulary of a model of type %q has another form", f.Type)
	case f.Type == "BPE" || f.Type == "":
		return f.bpe(byteLevel)
	case byteLevel:
		return nil, fmt.Errorf("a model of type %q behind ByteLevel is not supported", f.Type)
	case scored:
		return newUnigram(f.Vocab.scored, f.UnkID, f.ByteFallback)
	default:
		return newWordPiece(f)
	}
}

func (f *modelFile) bpe(byteLevel bool) (*bpe, error) {
	switch {
	case f.Dropout != nil && *f.Dropout != 0:
		return nil, errors.New("dropout is not supported: the same text would not have the same ids")
	case f.SubwordPrefix != "":
		return nil, fmt.Errorf("continuing_subword_prefix %q is not supported", f.SubwordPrefix)
	case f.WordSuffix != "":
		return nil, fmt.Errorf("end_of_word_suffix %q is not supported", f.WordSuffix)
	}
	return newBPE(bpeOptions{
		Vocab:        f.Vocab.ids,
		Merges:       f.Merges,
		Ranks:        f.ranks,
		ByteLevel:    byteLevel,
		IgnoreMerges: f.IgnoreMerges,
		ByteFallback: f.ByteFallback,
		Unk:          f.UnkToken,
		FuseUnk:      f.FuseUnk,
	})
}

// Load reads a tokenizer.json. Its errors name the section at fault.
func Load(data []byte) (*Tokenizer, error) {
	s, err := newSource(data)
	if err != nil {
		return nil, err
	}
	return s.Tokenizer()
}

func newSource(data []byte) (*Source, error) {
	s := &Source{name: jsonFile, file: new(tokenizerFile)}
	if err := json.Unmarshal(data, s.file); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return s, nil
}

func build(f *tokenizerFile) (*Tokenizer, error) {
	if f.Version != "" && f.Version != "1.0" {
		return nil, fmt.Errorf("version %q is not supported", f.Version)
	}
	if f.Model == nil {
		return nil, errors.New("no model")
	}
	t := new(Tokenizer)
	var err error
	var byteLevel bool
	if f.conversion != nil && f.conversion.normalize != nil {
		t.normalize = f.conversion.normalize
	} else if t.normalize, err = newNormalizer(f.Normalizer); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	if f.conversion != nil && f.conversion.words != nil {
		t.stages, byteLevel = f.conversion.words, true
	} else if t.stages, byteLevel, err = newPreTokenizers(f.PreTokenizer); err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if f.conversion != nil && f.conversion.model != nil {
		t.model = f.conversion.model
	} else if t.model, err = f.Model.build(byteLevel); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	tokens, size, err := f.tokens()
	if err != nil {
		return nil, err
	}
	if err := t.matchAdded(f.Added); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	if f.conversion != nil && f.conversion.users != nil {
		t.normal = f.conversion.users
	}
	if f.conversion != nil {
		t.template = f.conversion.frame
	} else if t.template, err = newTemplate(f.PostProcessor, size); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	if t.spelling, err = newSpelling(f.Decoder, tokens, size); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	t.spelling.markSpecial(f.Added, f.Model.Vocab.scored)
	return t, nil
}

// tokens returns the tokens by id, and the largest id plus one. It completes the added tokens: in a
// tokenizer.json, a token that the vocabulary contains keeps its id there, whatever added_tokens says.
func (f *tokenizerFile) tokens() (tokens map[uint32]string, size int, err error) {
	vocab, added := f.Model.Vocab, f.Added
	tokens = make(map[uint32]string, len(vocab.ids)+len(added))
	place := func(content string, id uint32) error {
		if id > maxID {
			return fmt.Errorf("id %d of token %q is larger than %d", id, content, maxID)
		}
		if other, taken := tokens[id]; taken && other != content {
			return fmt.Errorf("id %d is both %q and %q", id, min(content, other), max(content, other))
		}
		tokens[id] = content
		size = max(size, int(id)+1)
		return nil
	}
	for content, id := range vocab.ids {
		if err := place(content, id); err != nil {
			return nil, 0, fmt.Errorf("model: %w", err)
		}
	}
	for id, token := range vocab.scored { // an equal token may follow, whose id is the one above
		tokens[uint32(id)] = token.text
	}
	for i := range added {
		token := &added[i]
		if id, ok := vocab.ids[token.Content]; ok && (f.conversion == nil || !f.conversion.separated) {
			token.ID = &id
		}
		if token.ID == nil {
			return nil, 0, fmt.Errorf("added_tokens: token %q has no id", token.Content)
		}
		if token.Content == "" {
			continue // an empty token matches nothing; the Rust library ignores it, too
		}
		if err := place(token.Content, *token.ID); err != nil {
			return nil, 0, fmt.Errorf("added_tokens: %w", err)
		}
	}
	return tokens, size, nil
}

// matchAdded adds the added tokens to the matchers. Special tokens come first, because the first of
// equal tokens wins.
func (t *Tokenizer) matchAdded(added []addedToken) error {
	t.raw, t.normal = newAddedMatcher(), newAddedMatcher()
	t.added = make(map[string]uint32, len(added))
	for _, special := range []bool{true, false} {
		for _, token := range added {
			if token.Special != special || token.Content == "" {
				continue
			}
			if len(token.Content) > maxLiteral { // a search compares this many bytes at each byte of a text
				return fmt.Errorf("token %.100q has %d bytes; at most %d are allowed", token.Content, len(token.Content), maxLiteral)
			}
			if id, twice := t.added[token.Content]; twice && id != *token.ID {
				return fmt.Errorf("token %q has the ids %d and %d", token.Content, id, *token.ID)
			}
			t.added[token.Content] = *token.ID
			matcher, pattern := t.raw, token.Content
			if token.Normalized {
				p, err := t.normalize(piece{token.Content, true})
				if err != nil {
					return fmt.Errorf("token %.100q: %w", token.Content, err)
				}
				matcher, pattern = t.normal, p.text
			}
			if err := matcher.add(pattern, token); err != nil {
				return fmt.Errorf("token %q: %w", token.Content, err)
			}
		}
	}
	return nil
}
