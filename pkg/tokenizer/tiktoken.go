package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// A tiktokenFamily is what the programs of a family know about its tiktoken files: a tiktoken file has
// the tokens and their ranks, and neither the expression that splits texts nor the special tokens.
type tiktokenFamily struct {
	file    string // its name
	class   string // tokenizer_class in tokenizer_config.json; "" for any
	pattern string
	special func(base int) []addedToken // the special tokens, of a file with base tokens
	begin   []string                    // the special tokens before every text
	chunked bool                        // long runs are cut
}

var tiktokenFamilies = []tiktokenFamily{
	{file: "tiktoken.model", class: "TikTokenTokenizer", pattern: pattern.Kimi, special: kimiTokens, chunked: true},
	{file: "qwen.tiktoken", pattern: pattern.Qwen, special: extraTokens("<|endoftext|>", "<|im_start|>", "<|im_end|>")},
	{file: "hy.tiktoken", pattern: pattern.Qwen, special: extraTokens("<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>")},
	{file: "o200k_harmony.tiktoken", pattern: pattern.O200K, special: harmonyTokens},
	{file: "o200k_base.tiktoken", pattern: pattern.O200K, special: harmonyTokens},
	{file: spmFile, class: "ChatGLM4Tokenizer", pattern: pattern.CL100K, begin: []string{"[gMASK]", "<sop>"}},
	{file: spmFile, pattern: pattern.CL100K, special: llamaTokens, begin: []string{"<|begin_of_text|>"}},
}

// reservedTokens is the number of special tokens of Kimi and of Llama 3.
const reservedTokens = 256

func kimiTokens(base int) (all []addedToken) {
	for i := range reservedTokens {
		all = append(all, specialToken(base+i, "<|reserved_token_%d|>", base+i))
	}
	return all
}

// extraTokens returns the special tokens of Qwen 1 and of Hunyuan.
func extraTokens(first ...string) func(base int) []addedToken {
	return func(base int) (all []addedToken) {
		for i, token := range first {
			all = append(all, specialToken(base+i, "%s", token))
		}
		for i := range 205 {
			all = append(all, specialToken(base+len(first)+i, "<|extra_%d|>", i))
		}
		return all
	}
}

// harmonyTokens returns the special tokens of GPT-OSS.
func harmonyTokens(base int) []addedToken {
	all := []addedToken{
		specialToken(base, "<|startoftext|>"), specialToken(base+1, "<|endoftext|>"),
	}
	named := map[int]string{4: "<|return|>", 5: "<|constrain|>", 7: "<|channel|>", 8: "<|start|>", 9: "<|end|>", 10: "<|message|>", 14: "<|call|>", 20: "<|endofprompt|>"}
	for i := 2; i < 1090; i++ {
		all = append(all, specialToken(base+i, "%s", cmp.Or(named[i], fmt.Sprintf("<|reserved_%d|>", base+i))))
	}
	return all
}

// llamaTokens returns the special tokens of Llama 3.
func llamaTokens(base int) (all []addedToken) {
	names := []string{
		"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>",
		"<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>",
	}
	for i, name := range names {
		all = append(all, specialToken(base+i, "%s", name))
	}
	for i := 3; len(all) < reservedTokens; i++ {
		all = append(all, specialToken(base+len(all), "<|reserved_special_token_%d|>", i))
	}
	return all
}

// readTiktoken reads a tiktoken file.
func readTiktoken(name string, data []byte, config *tokenizerConfig) (*tokenizerFile, error) {
	i := slices.IndexFunc(tiktokenFamilies, func(f tiktokenFamily) bool {
		return f.file == name && (f.class == "" || f.class == config.Class)
	})
	if i < 0 {
		return nil, fmt.Errorf("how a tiktoken file of tokenizer_class %.80q splits texts is unknown: put the model's tokenizer.json beside it", config.Class)
	}
	family := &tiktokenFamilies[i]
	tokens, err := readRanks(data)
	if err != nil {
		return nil, err
	}
	base := len(tokens)
	var added []addedToken
	if family.special != nil {
		added = family.special(base)
	}
	f, err := newByteFile(tokens, family.pattern, config.add(added))
	if err != nil {
		return nil, err
	}
	if family.chunked {
		f.conversion.words = append([]preTokenizer{chunks{}}, f.conversion.words...)
	}
	var frame []uint32
	for _, name := range family.begin {
		i := slices.IndexFunc(f.Added, func(t addedToken) bool { return t.Content == name })
		if i < 0 {
			return nil, fmt.Errorf("tokenizer_config.json has no token %q", name)
		}
		frame = append(frame, *f.Added[i].ID)
	}
	if frame != nil {
		f.begin(frame...)
	}
	return f, nil
}

// add returns the added tokens of the configuration, and those of tokens with other ids and texts.
func (c *tokenizerConfig) add(tokens []addedToken) []addedToken {
	all := make([]addedToken, 0, len(c.Added)+len(tokens))
	texts := make(map[string]bool, len(c.Added))
	for id, token := range c.Added {
		token.ID = &id
		token.Normalized = false // there is no normalizer
		all = append(all, token)
		texts[token.Content] = true
	}
	for _, token := range tokens {
		if _, known := c.Added[*token.ID]; !known && !texts[token.Content] {
			all = append(all, token)
		}
	}
	slices.SortFunc(all, func(a, b addedToken) int { return cmp.Compare(*a.ID, *b.ID) })
	return all
}

func isBase64(s string) bool {
	_, err := base64.StdEncoding.DecodeString(s)
	return err == nil && s != ""
}

// readRanks reads lines of a token in base64 and its rank, which is its id.
func readRanks(data []byte) (map[uint32]string, error) {
	tokens := make(map[uint32]string, len(data)/16)
	for n := 1; len(data) > 0; n++ {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		code, number, _ := strings.Cut(string(line), " ")
		token, err := base64.StdEncoding.DecodeString(code)
		if err != nil || len(token) == 0 {
			return nil, fmt.Errorf("line %d does not begin with a token in base64", n)
		}
		rank, err := strconv.ParseUint(number, 10, 32)
		if err != nil || rank > maxID {
			return nil, fmt.Errorf("line %d does not end with a rank up to %d", n, maxID)
		}
		if other, twice := tokens[uint32(rank)]; twice {
			return nil, fmt.Errorf("rank %d has the tokens %.40q and %.40q", rank, other, token)
		}
		tokens[uint32(rank)] = string(token)
	}
	return tokens, nil
}

// chunks cuts runs of white space and of other characters that are longer than maxRunChars, and texts
// longer than maxChunkChars, as Kimi's program does.
type chunks struct{}

const (
	maxRunChars   = 25_000
	maxChunkChars = 400_000
)

func (chunks) split(dst []piece, p piece, _ *scratch) []piece {
	if len(p.text) <= maxRunChars {
		return append(dst, p)
	}
	start, run, total := 0, 0, 0
	blank := false
	for i, r := range p.text {
		is := unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F // Python's definition
		if total == maxChunkChars || run == maxRunChars && is == blank {
			if total == maxChunkChars {
				total = 0
			}
			dst = append(dst, piece{p.text[start:i], p.first && start == 0})
			start, run = i, 0
		}
		if is != blank {
			run = 0
		}
		blank = is
		run++
		total++
	}
	return append(dst, piece{p.text[start:], p.first && start == 0})
}
