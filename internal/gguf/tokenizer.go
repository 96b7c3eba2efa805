package gguf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrTokenizer is the error of a tokenizer that cannot be made from the metadata.
var ErrTokenizer = errors.New("put the model's tokenizer.json beside the GGUF file")

// Values of tokenizer.ggml.model.
const (
	byteLevel     = "gpt2"
	sentencePiece = "llama"
)

// Types of tokens, which are also those of SentencePiece.
const (
	normalToken  = 1
	controlToken = 3
	userToken    = 4
	unusedToken  = 5
	byteToken    = 6
)

// A preTokenizer is how a value of tokenizer.ggml.pre splits text. The expressions are those of the
// models' own tokenizer.json.
type preTokenizer struct {
	split        string // regular expression; empty means the expression of GPT-2
	digits       bool   // digits are split first, one by one
	nfc          bool   // text is normalized to NFC
	ignoreMerges bool   // a word of the vocabulary is one token
	bos          bool   // default of tokenizer.ggml.add_bos_token
}

const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|`
	rest         = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	// Words of camel case are split, and a slash may follow punctuation.
	lower     = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	upper     = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	endings   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
	slashRest = `| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var preTokenizers = map[string]preTokenizer{
	"gpt-2":     {},
	"smollm":    {digits: true},
	"qwen2":     {split: contractions + `\p{N}` + rest, nfc: true},
	"llama-bpe": {split: contractions + `\p{N}{1,3}` + rest, ignoreMerges: true, bos: true},
	"gpt-4o":    {split: lower + endings + "|" + upper + endings + `|\p{N}{1,3}` + slashRest},
	"tekken":    {split: lower + "|" + upper + `|\p{N}` + slashRest, ignoreMerges: true, bos: true},
}

// samePreTokenizer has other names of the values above.
var samePreTokenizer = map[string]string{"llama3": "llama-bpe", "llama-v3": "llama-bpe", "llama4": "gpt-4o", "deepseek-r1-qwen": "qwen2"}

// vocabulary is the part of the metadata that describes tokens.
type vocabulary struct {
	tokens []string
	types  []int // of each token
	pre    preTokenizer
}

func (m *model) vocabulary() (*vocabulary, error) {
	h := m.header
	v := &vocabulary{}
	var ok bool
	switch kind, pre := h.text("tokenizer.ggml.model"), h.text("tokenizer.ggml.pre"); kind {
	case byteLevel:
		if v.pre, ok = preTokenizers[cmp.Or(samePreTokenizer[pre], pre)]; !ok {
			return nil, fmt.Errorf("the pre-tokenizer %.64q is not supported, only gpt-2, gpt-4o, smollm, qwen2, llama-bpe and tekken: %w", pre, ErrTokenizer)
		}
	case sentencePiece:
		v.pre.bos = true
	default:
		return nil, fmt.Errorf("the tokenizer %.64q is not supported, only gpt2 (byte-level BPE) and llama (SentencePiece): %w", kind, ErrTokenizer)
	}
	if v.tokens, ok = h.meta["tokenizer.ggml.tokens"].([]string); !ok || len(v.tokens) == 0 {
		return nil, fmt.Errorf("the metadata have no tokenizer.ggml.tokens: %w", ErrTokenizer)
	}
	if i := slices.IndexFunc(v.tokens, func(token string) bool { return !utf8.ValidString(token) }); i >= 0 {
		return nil, fmt.Errorf("token %d, %.64q, is not UTF-8: %w", i, v.tokens[i], ErrTokenizer)
	}
	v.types = make([]int, len(v.tokens))
	for i := range v.types {
		v.types[i] = normalToken
	}
	list, ok := h.meta["tokenizer.ggml.token_type"].(numberList)
	if !ok {
		return v, nil
	}
	types, ok := list.ints()
	if !ok || len(types) != len(v.tokens) {
		return nil, fmt.Errorf("there are %d tokens and %d types: %w", len(v.tokens), len(types), ErrTokenizer)
	}
	for i, t := range types {
		v.types[i] = int(t)
	}
	return v, nil
}

// component is a section of tokenizer.json.
type component map[string]any

// tokenizer makes tokenizer.json.
func (m *model) tokenizer() ([]byte, error) {
	v, err := m.vocabulary()
	if err != nil {
		return nil, err
	}
	merges, ok := m.header.meta["tokenizer.ggml.merges"].([]string)
	if !ok {
		return nil, fmt.Errorf("the metadata have no tokenizer.ggml.merges: %w", ErrTokenizer)
	}
	vocab, added := map[string]int{}, []component{}
	for id, token := range v.tokens {
		switch v.types[id] {
		case controlToken, userToken:
			added = append(added, component{
				"id": id, "content": token, "special": v.types[id] == controlToken,
				"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
			})
		case unusedToken:
		default:
			if other, twice := vocab[token]; twice {
				return nil, fmt.Errorf("tokens %d and %d are both %.64q: %w", other, id, token, ErrTokenizer)
			}
			vocab[token] = id
		}
	}
	plain := component{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	file := component{
		"version": "1.0", "added_tokens": added, "normalizer": nil, "pre_tokenizer": v.pre.component(), "post_processor": plain, "decoder": plain,
		"model": component{"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": v.pre.ignoreMerges},
	}
	if v.pre.nfc {
		file["normalizer"] = component{"type": "NFC"}
	}
	if bos, ok := m.bos(v); ok {
		token := v.tokens[bos]
		file["post_processor"] = component{
			"type":           "TemplateProcessing",
			"single":         []component{{"SpecialToken": component{"id": token, "type_id": 0}}, {"Sequence": component{"id": "A", "type_id": 0}}},
			"special_tokens": component{token: component{"id": token, "ids": []int{bos}, "tokens": []string{token}}},
		}
	}
	return json.Marshal(file)
}

func (p preTokenizer) component() component {
	var steps []component
	if p.digits {
		steps = append(steps, component{"type": "Digits", "individual_digits": true})
	}
	if p.split != "" {
		steps = append(steps, component{"type": "Split", "pattern": component{"Regex": p.split}, "behavior": "Isolated", "invert": false})
	}
	steps = append(steps, component{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": p.split == ""})
	return component{"type": "Sequence", "pretokenizers": steps}
}

// bos returns the token that begins each text, if there is one.
func (m *model) bos(v *vocabulary) (id int, ok bool) {
	adds, given := m.header.meta["tokenizer.ggml.add_bos_token"].(bool)
	if !given {
		adds = v.pre.bos
	}
	id, ok = m.special(v, "bos_token_id")
	return id, ok && adds
}

// special returns a token that the metadata name.
func (m *model) special(v *vocabulary, key string) (id int, ok bool) {
	n := m.header.number("tokenizer.ggml."+key, -1)
	if n < 0 || n >= float64(len(v.tokens)) {
		return 0, false
	}
	return int(n), true
}

// tokenizerConfig makes tokenizer_config.json. The template is the file's own; a model without one
// has no chat.
func (m *model) tokenizerConfig() ([]byte, error) {
	c := component{}
	if template := m.header.text("tokenizer.chat_template"); template != "" {
		c["chat_template"] = template
	}
	if tokens, ok := m.header.meta["tokenizer.ggml.tokens"].([]string); ok {
		v := &vocabulary{tokens: tokens}
		for field, key := range map[string]string{
			"bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id", "pad_token": "padding_token_id",
		} {
			if id, ok := m.special(v, key); ok {
				c[field] = tokens[id]
			}
		}
	}
	if m.header.text("tokenizer.ggml.model") == sentencePiece { // whose tokenizer.model has none of these
		flag := func(key string, otherwise bool) bool {
			if v, ok := m.header.meta["tokenizer.ggml."+key].(bool); ok {
				return v
			}
			return otherwise
		}
		_, begins := c["bos_token"]
		c["add_bos_token"], c["add_eos_token"] = begins && flag("add_bos_token", true), flag("add_eos_token", false)
		c["added_tokens_decoder"] = m.userTokens()
	}
	return json.Marshal(c)
}

// userTokens returns the tokens that are found in a text before its pieces are joined.
func (m *model) userTokens() map[string]component {
	v, err := m.vocabulary()
	if err != nil {
		return nil // as tokenizer.model reports
	}
	added := map[string]component{}
	for id, kind := range v.types {
		if kind == userToken {
			added[strconv.Itoa(id)] = component{"content": v.tokens[id], "special": false}
		}
	}
	return added
}

// ends are the control tokens that end an answer in the formats of well-known models, for files whose
// metadata name only the end of a text.
var ends = []string{"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"}

// generation makes generation_config.json, with the tokens that end an answer.
func (m *model) generation() ([]byte, error) {
	tokens, ok := m.header.meta["tokenizer.ggml.tokens"].([]string)
	if !ok {
		return nil, errors.New("the metadata have no tokenizer.ggml.tokens, so the tokens that end an answer are unknown: put the model's generation_config.json beside the GGUF file")
	}
	v := &vocabulary{tokens: tokens}
	var ids []int
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		if id, ok := m.special(v, key); ok {
			ids = append(ids, id)
		}
	}
	for id, token := range tokens {
		if strings.HasPrefix(token, "<|") && slices.Contains(ends, token) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return json.Marshal(map[string]any{"eos_token_id": slices.Compact(ids)})
}
