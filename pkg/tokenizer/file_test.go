package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// small returns a tokenizer.json in which sections, in the form of the file, replace the defaults.
func small(sections ...string) []byte {
	file := map[string]string{
		"added_tokens": `[{"id":4,"content":"<s>","special":true}]`,
		"model":        `{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"c":3},"merges":["a b"]}`,
	}
	for _, s := range sections {
		var more map[string]json.RawMessage
		if err := json.Unmarshal([]byte("{"+s+"}"), &more); err != nil {
			panic(err) // a mistake in the test
		}
		for key, value := range more {
			file[key] = string(value)
		}
	}
	var out strings.Builder
	for key, value := range file {
		fmt.Fprintf(&out, ",%q:%s", key, value)
	}
	return []byte("{" + out.String()[1:] + "}")
}

func TestLoadNamesUnsupportedParts(t *testing.T) {
	for section, want := range map[string]string{
		`"normalizer":{"type":"ByteLevel"}`:                                               `normalizer: type "ByteLevel" is not supported`,
		`"normalizer":{"type":"Precompiled"}`:                                             `normalizer: Precompiled: the normalization (precompiled_charsmap) is damaged`,
		`"normalizer":{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAD/AA=="}`:   `normalizer: Precompiled: the normalization (precompiled_charsmap) is damaged`,
		`"normalizer":{"type":"BertNormalizer","clean_text":true,"lowercase":true}`:       `normalizer: BertNormalizer: clean_text, handle_chinese_chars or lowercase is missing`,
		`"pre_tokenizer":{"type":"CharDelimiterSplit","delimiter":"ab"}`:                  `pre_tokenizer: CharDelimiterSplit: delimiter "ab" is not one character`,
		`"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Nope"}]}`: `normalizer: type "Nope" is not supported`,
		`"normalizer":{"type":"Sequence"}`:                                                `normalizer: Sequence: no normalizers`,
		`"normalizer":{"type":"Replace","content":""}`:                                    `normalizer: Replace: no pattern`,
		`"normalizer":{"type":"Replace","pattern":{"String":""},"content":""}`:            `normalizer: Replace: the pattern is empty`,
		`"pre_tokenizer":{"type":"UnicodeScripts"}`:                                       `pre_tokenizer: type "UnicodeScripts" is not supported`,
		`"pre_tokenizer":{}`: `pre_tokenizer: type "" is not supported`,
		`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?~a)"},"behavior":"Isolated"}`:                                       `pre_tokenizer: Split: regular expression "(?~a)": an absent group`,
		`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"Sideways"}`:                                           `pre_tokenizer: Split: split behavior "Sideways" is not supported`,
		`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"}}`:                                                                 `pre_tokenizer: Split: no behavior`,
		`"pre_tokenizer":{"type":"Split","pattern":{},"behavior":"Removed"}`:                                                       `pre_tokenizer: Split: the pattern is neither String nor Regex`,
		`"pre_tokenizer":{"type":"Metaspace","replacement":"__"}`:                                                                  `pre_tokenizer: Metaspace: replacement "__" is not one character`,
		`"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"x"}`:                                              `pre_tokenizer: Metaspace: prepend_scheme "x" is not supported`,
		`"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]}`:                          `pre_tokenizer: ByteLevel: there is more than one`,
		`"post_processor":{"type":"Nope"}`:                                                                                         `post_processor: type "Nope" is not supported`,
		`"post_processor":{"type":"BertProcessing","cls":["a",0],"sep":["b",9]}`:                                                   `post_processor: BertProcessing: cls or sep is not a token and its id`,
		`"post_processor":{"type":"RobertaProcessing","sep":["b",1]}`:                                                              `post_processor: RobertaProcessing: cls or sep is not a token and its id`,
		`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<x>"}}]}`:                                  `post_processor: TemplateProcessing: "<x>" is not among the special_tokens`,
		`"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B"}}]}`:                                        `post_processor: TemplateProcessing: the template for one text has a sequence "B"`,
		`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],"special_tokens":{"x":{"ids":[9]}}}`: `"x" has id 9, which no token has`,
		`"decoder":{"type":"BPEDecoder"}`:                                                                                          `decoder: type "BPEDecoder" is not supported`,
		`"decoder":{"type":"WordPiece","prefix":"##"}`:                                                                             `decoder: WordPiece: prefix or cleanup is missing`,
		`"decoder":{"type":"Strip","content":"ab","start":1,"stop":0}`:                                                             `decoder: Strip: content "ab" is not one character`,
		`"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]}`:                                       `decoder: ByteFallback: follows a step`,
		`"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"Regex":"a"},"content":""}]}`:       `decoder: Replace: a Regex behind Fuse`,
		`"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"ByteFallback"}]}`:                               `decoder: ByteFallback: follows a step`,
		`"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"ByteLevel"}]}`:                                  `decoder: ByteLevel: follows a step`,
		`"normalizer":{"type":"Strip","strip_left":true},"added_tokens":[{"id":4,"content":" ","normalized":true}]`:                `added_tokens: token " ": the normalized token is empty`,
		`"added_tokens":[{"id":4,"content":"x"},{"id":5,"content":"x"}]`:                                                           `added_tokens: token "x" has the ids 4 and 5`,
		`"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"CTC"}]}`:                                                `decoder: type "CTC" is not supported`,
		`"model":{"type":"WordLevel","vocab":{}}`:                                                                                  `model: type "WordLevel" is not supported`,
		`"model":{"type":"Unigram"}`:                                                                                                     `model: no vocabulary`,
		`"model":{"type":"Unigram","vocab":[]}`:                                                                                          `model: unk_id is not the id of a token`,
		`"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":1}`:                                                                        `model: unk_id is not the id of a token`,
		`"model":{"type":"Unigram","vocab":{"a":0},"unk_id":0}`:                                                                          `model: the vocabulary of a model of type "Unigram" has another form`,
		`"model":{"type":"Unigram","vocab":[["` + strings.Repeat("a", 600) + `",0]],"unk_id":0}`:                                         `has 600 bytes; at most 512 are allowed`,
		`"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":0},"pre_tokenizer":{"type":"ByteLevel"}`:                                   `model: a model of type "Unigram" behind ByteLevel is not supported`,
		`"model":{"type":"BPE","vocab":[["a",0]],"merges":[]}`:                                                                           `model: the vocabulary of a model of type "BPE" has another form`,
		`"model":{"type":"WordPiece","vocab":{}}`:                                                                                        `model: unk_token "" is not in the vocabulary`,
		`"model":{"type":"WordPiece","vocab":{"?":0},"unk_token":"?"}`:                                                                   `model: no max_input_chars_per_word`,
		`"model":{"type":"WordPiece","vocab":{"?":0,"` + strings.Repeat("a", 600) + `":1},"unk_token":"?","max_input_chars_per_word":9}`: `has 600 bytes; at most 512 are allowed`,
		`"model":{"type":"BPE","merges":[]}`:                                                                                             `model: no vocabulary`,
		`"model":{"type":"BPE","vocab":{},"merges":[],"dropout":0.1}`:                                                                    `model: dropout`,
		`"model":{"type":"BPE","vocab":{},"merges":[],"end_of_word_suffix":"</w>"}`:                                                      `model: end_of_word_suffix "</w>"`,
		`"model":{"type":"BPE","vocab":{},"merges":[],"continuing_subword_prefix":"##"}`:                                                 `model: continuing_subword_prefix "##"`,
		`"model":{"type":"BPE","vocab":{},"merges":[],"unk_token":"?"}`:                                                                  `model: unk_token "?" is not in the vocabulary`,
		`"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}`:                                                                        `model: merge 0: token "b" is not in the vocabulary`,
		`"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}`:                                                                          `merge 0, "a", is not two tokens`,
		`"model":{"type":"BPE","vocab":{"a":0},"merges":[["a","b","c"]]}`:                                                                `merge 0 has 3 tokens`,
		`"model":{"type":"BPE","vocab":{"a":4000000000},"merges":[]}`:                                                                    `model: id 4000000000 of token "a" is larger than`,
		`"model":{"type":"BPE","vocab":{"a":1,"b":1},"merges":[]}`:                                                                       `model: id 1 is both "a" and "b"`,
		`"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}`:                                                                            `tokenizer.json: `,
		`"model":null`:                              `no model`,
		`"added_tokens":[{"content":"<x>"}]`:        `added_tokens: token "<x>" has no id`,
		`"added_tokens":[{"id":2,"content":"<x>"}]`: `added_tokens: id 2 is both "<x>" and "ab"`,
		`"version":"2.0"`:                           `version "2.0" is not supported`,
	} {
		_, err := Load(small(section))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", section, err, want)
		}
	}
}

func TestAnAddedTokenKeepsItsIDInTheVocabulary(t *testing.T) {
	tok := load(t, small(`"added_tokens":[{"id":9,"content":"ab","special":true}]`))
	if id, ok := tok.TokenID("ab"); id != 2 || !ok {
		t.Errorf("TokenID(ab) = %d, %v", id, ok)
	}
	if !tok.IsSpecial(2) || tok.IsSpecial(9) || tok.VocabSize() != 4 {
		t.Errorf("special: 2 %v, 9 %v; size %d", tok.IsSpecial(2), tok.IsSpecial(9), tok.VocabSize())
	}
}

func TestSpecialTokenWinsOverTokenWithSameNormalization(t *testing.T) {
	tok := load(t, small(`"normalizer":{"type":"Lowercase"},"added_tokens":[{"id":4,"content":"AB","normalized":true},{"id":5,"content":"Ab","normalized":true,"special":true}]`))
	if got := tok.Encode("aB", false); !slices.Equal(got, []uint32{5}) {
		t.Errorf("ids %v", got)
	}
}

func TestIDsOfTheEmbeddedModel(t *testing.T) {
	tok := tiny(t)
	end, ok := tok.TokenID("<|im_end|>")
	if !ok || end != 1535 || !tok.IsSpecial(end) || tok.VocabSize() != 1536 {
		t.Errorf("<|im_end|> is %d, %v; special %v; size %d", end, ok, tok.IsSpecial(end), tok.VocabSize())
	}
	if id, ok := tok.TokenID("Ġthe"); !ok || tok.Decode([]uint32{id}, false) != " the" || tok.IsSpecial(id) {
		t.Errorf("Ġthe is %d, %v: %q", id, ok, tok.Decode([]uint32{id}, false))
	}
	if _, ok := tok.TokenID("<|no_such_token|>"); ok {
		t.Error("TokenID found a token that does not exist")
	}
	if tok.IsSpecial(1 << 31) {
		t.Error("IsSpecial is true for an id that does not exist")
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(small())
	for _, section := range []string{
		`"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Strip","strip_left":true},{"type":"Replace","pattern":{"String":" "},"content":"b"},{"type":"Prepend","prepend":"a"}]}`,
		`"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"a|$"},"behavior":"MergedWithNext","invert":true},{"type":"ByteLevel"},{"type":"Digits"}]}`,
		`"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first"}`,
		`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],"special_tokens":{"x":{"ids":[3]}}}`,
		`"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":"a","start":1,"stop":2},{"type":"Replace","pattern":{"String":"bb"},"content":"b"}]}`,
		`"decoder":{"type":"ByteLevel"}`,
		`"added_tokens":[{"id":4,"content":"b","lstrip":true,"rstrip":true,"single_word":true,"normalized":true},{"id":4,"content":"b"}]`,
		`"model":{"type":"BPE","vocab":{"<0x61>":0,"?":1,"b":2,"bb":3},"merges":[["b","b"]],"byte_fallback":true,"unk_token":"?","fuse_unk":true,"ignore_merges":true}`,
		`"model":{"type":"Unigram","vocab":[["?",0],["a",-1.5],["ab",-2e0],["a",-1]],"unk_id":0,"byte_fallback":true}`,
		`"model":{"type":"WordPiece","vocab":{"?":0,"a":1,"##b":2},"unk_token":"?","continuing_subword_prefix":"##","max_input_chars_per_word":9},"decoder":{"type":"WordPiece","prefix":"##","cleanup":true}`,
	} {
		f.Add(small(section))
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Load(data)
		if err != nil {
			return
		}
		// A file that loads also works.
		ids := tok.Encode("ab <s> é\u0301 1A\n\n", true)
		tok.Decode(ids, true)
		d := tok.NewDecoder(false)
		for id := range uint32(min(tok.VocabSize(), 300)) {
			d.Next(id)
		}
		d.Flush()
	})
}
