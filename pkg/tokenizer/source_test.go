package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// directory returns a directory with these files.
func directory(files map[string]string) fs.FS {
	dir := fstest.MapFS{}
	for name, data := range files {
		dir[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return dir
}

func open(t testing.TB, files map[string]string) *Tokenizer {
	t.Helper()
	s, err := Open(directory(files))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := s.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// byteTokens returns a token for every byte, and then the tokens in more.
func byteTokens(more ...string) []string {
	all := make([]string, 256, 256+len(more))
	for b := range all {
		all[b] = string([]byte{byte(b)})
	}
	return append(all, more...)
}

// ranksFile returns a tiktoken file.
func ranksFile(more ...string) string {
	var b strings.Builder
	for rank, token := range byteTokens(more...) {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), rank)
	}
	return b.String()
}

const kimiConfig = `{"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":{
	"263":{"content":"[BOS]","special":true}, "265":{"content":"<|call|>","special":false,"normalized":true}}}`

// TestKimiSplitsBetweenChineseAndOtherLetters: the class in its expression excludes Chinese, so "x中"
// is never a token, although o200k's expression makes one of it.
func TestKimiSplitsBetweenChineseAndOtherLetters(t *testing.T) {
	ranks := ranksFile("\xE4\xB8", "中", "x中", "\xE6\x96", "文", "ab", "never")
	kimi := open(t, map[string]string{"tiktoken.model": ranks, "tokenizer_config.json": kimiConfig})
	mixed := open(t, map[string]string{"o200k_base.tiktoken": ranks})
	const text = "x中文ab"
	if got, want := kimi.Encode(text, true), []uint32{'x', 257, 260, 261}; !slices.Equal(got, want) {
		t.Errorf("Kimi: %v; want %v", got, want)
	}
	if got, want := mixed.Encode(text, false), []uint32{258, 260, 261}; !slices.Equal(got, want) {
		t.Errorf("o200k: %v; want %v", got, want)
	}
	if got, want := kimi.Encode("[BOS]<|reserved_token_264|>ab<|call|>", false), []uint32{263, 264, 261, 265}; !slices.Equal(got, want) {
		t.Errorf("special tokens: %v; want %v", got, want)
	}
	if !kimi.IsSpecial(263) || kimi.IsSpecial(265) || kimi.VocabSize() != 263+256 {
		t.Errorf("special tokens: 263 %v, 265 %v; %d ids", kimi.IsSpecial(263), kimi.IsSpecial(265), kimi.VocabSize())
	}
	if got := kimi.Decode([]uint32{257, 263, 261, 265}, true); got != "中ab<|call|>" {
		t.Errorf("Decode: %q", got)
	}
}

// TestTiktokenJoinsTheLowestRankAndThenFromTheLeft: "aab" may become (aa)b or a(ab); the rank is that
// of the result, whatever its parts are.
func TestTiktokenJoinsTheLowestRankAndThenFromTheLeft(t *testing.T) {
	tok := open(t, map[string]string{"qwen.tiktoken": ranksFile("ab", "aa", "aab", "aba", "abab")})
	for text, want := range map[string][]uint32{
		"aab": {258}, "aaa": {257, 'a'}, "abab": {260}, "xaba": {'x', 259}, "xababa": {'x', 256, 259}, "xaaab": {'x', 257, 256},
	} {
		if got := tok.Encode(text, false); !slices.Equal(got, want) {
			t.Errorf("%s: %v; want %v", text, got, want)
		}
	}
	if got, want := tok.Encode("<|im_start|>ab<|extra_1|>", true), []uint32{262, 256, 265}; !slices.Equal(got, want) {
		t.Errorf("special tokens: %v; want %v", got, want)
	}
}

func TestSpecialTokensOfTiktokenFamilies(t *testing.T) {
	for _, c := range []struct {
		file, config, text string
		want               []uint32
	}{
		{"o200k_harmony.tiktoken", "", "<|startoftext|><|return|><|call|><|reserved_1345|>", []uint32{256, 260, 270, 1345}},
		{"hy.tiktoken", "", "<|startoftext|><|extra_204|>", []uint32{257, 256 + 5 + 204}},
		{"tokenizer.model", "", "<|eot_id|><|reserved_special_token_247|>", []uint32{256, 265, 511}},
		{
			"tokenizer.model", `{"tokenizer_class":"ChatGLM4Tokenizer","added_tokens_decoder":{"256":{"content":"[gMASK]","special":true},"257":{"content":"<sop>","special":true}}}`,
			"a<sop>", []uint32{256, 257, 'a', 257},
		},
	} {
		files := map[string]string{c.file: ranksFile()}
		if c.config != "" {
			files["tokenizer_config.json"] = c.config
		}
		if got := open(t, files).Encode(c.text, true); !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %v; want %v", c.file, c.text, got, c.want)
		}
	}
}

// TestLongRunsAreCut: Kimi's program passes long runs to its engine in parts, and so tokens end there.
func TestLongRunsAreCut(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []int // lengths
	}{
		"short":           {strings.Repeat("a", maxRunChars), []int{maxRunChars}},
		"letters":         {strings.Repeat("é", maxRunChars+1), []int{2 * maxRunChars, 2}},
		"white space":     {strings.Repeat(" ", 2*maxRunChars), []int{maxRunChars, maxRunChars}},
		"both":            {strings.Repeat("a", maxRunChars) + strings.Repeat(" ", maxRunChars) + "b", []int{2*maxRunChars + 1}},
		"many characters": {strings.Repeat("a ", maxChunkChars/2+1), []int{maxChunkChars, 2}},
	} {
		var got []int
		for _, p := range (chunks{}).split(nil, piece{text: c.text, first: true}, nil) {
			got = append(got, len(p.text))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v; want %v", name, got, c.want)
		}
	}
}

// tekkenJSON returns a tekken.json with 24 special tokens.
func tekkenJSON(t testing.TB, special string, more ...string) string {
	t.Helper()
	type token struct {
		Rank  int    `json:"rank"`
		Bytes string `json:"token_bytes"`
	}
	var vocab []token
	for rank, s := range byteTokens(more...) {
		vocab = append(vocab, token{rank, base64.StdEncoding.EncodeToString([]byte(s))})
	}
	list, err := json.Marshal(vocab)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"config":{"pattern":"\\p{L}+|\\s+|[^\\p{L}\\s]+","default_vocab_size":%d,"default_num_special_tokens":24},"vocab":%s%s}`, 24+256+2, list, special)
}

func TestTekkenHasItsSpecialTokensFirst(t *testing.T) {
	tok := open(t, map[string]string{"tekken.json": tekkenJSON(t, "", "<s>", "ab", "abc")})
	// "<s>" is a special token, and a token of the vocabulary; "abc" is beyond the model's size.
	if got, want := tok.Encode("<s>abc[INST]<SPECIAL_23>", true), []uint32{1, 1, 24 + 257, 24 + 'c', 3, 23}; !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	if got := tok.Decode([]uint32{1, 24 + 256, 24 + 257}, true); got != "<s>ab" || tok.VocabSize() != 282 {
		t.Errorf("%q, %d ids", got, tok.VocabSize())
	}
	tok = open(t, map[string]string{"tekken.json": tekkenJSON(t, `,"special_tokens":[{"rank":0,"token_str":"<unk>"},{"rank":1,"token_str":"<s>"},{"rank":2,"token_str":"[THINK]","is_control":false}]`, "ab", "cd")})
	if got, want := tok.Encode("[THINK]cd<SPECIAL_3>", false), []uint32{2, 24 + 257, 3}; !slices.Equal(got, want) || tok.IsSpecial(2) {
		t.Errorf("%v; want %v; [THINK] is special: %v", got, want, tok.IsSpecial(2))
	}
}

func TestTokenizerJSONComesFirst(t *testing.T) {
	tok := open(t, map[string]string{"tekken.json": "{", "tokenizer.json": string(small())})
	if got := tok.Encode("ab", false); !slices.Equal(got, []uint32{2}) {
		t.Errorf("%v", got)
	}
	if _, err := Open(directory(nil)); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "tekken.json") {
		t.Errorf("no file: %v", err)
	}
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ file, data, config, want string }{
		{"tiktoken.model", ranksFile(), `{"tokenizer_class":"New"}`, `tiktoken.model: how a tiktoken file of tokenizer_class "New" splits texts is unknown`},
		{"tiktoken.model", ranksFile(), `{`, `tokenizer_config.json: `},
		{"qwen.tiktoken", "YQ== 0\n", "", "qwen.tiktoken: no token has the byte 0x00 alone"},
		{"qwen.tiktoken", "YQ== x\n", "", "line 1 does not end with a rank"},
		{"qwen.tiktoken", "YQ== 5000000\n", "", "line 1 does not end with a rank"},
		{"qwen.tiktoken", "\n!! 0\n", "", "line 2 does not begin with a token"},
		{"qwen.tiktoken", "YQ== 0\nYg== 0\n", "", `rank 0 has the tokens "a" and "b"`},
		{"qwen.tiktoken", "YQ== 0\nYQ== 1\n", "", `tokens 0 and 1 are both "a"`},
		{"tokenizer.model", ranksFile(), `{"tokenizer_class":"ChatGLM4Tokenizer"}`, `tokenizer_config.json has no token "[gMASK]"`},
		{"qwen.tiktoken", ranksFile(strings.Repeat("a", 1<<15)), "", "the tokens of the vocabulary are too long"},
		{"tekken.json", `{`, "", "tekken.json: "},
		{"tekken.json", `{"config":{"default_vocab_size":1,"default_num_special_tokens":1}}`, "", "default_vocab_size is 1"},
		{"tekken.json", `{"config":{"default_vocab_size":40,"default_num_special_tokens":20}}`, "", "the vocabulary has 0 tokens, and must have 20"},
		{"tekken.json", `{"config":{"default_vocab_size":20,"default_num_special_tokens":20},"special_tokens":[{"rank":1,"token_str":"a"}]}`, "", `special token 0 has the rank 1`},
		{"tekken.json", `{"config":{"default_vocab_size":20,"default_num_special_tokens":20},"special_tokens":[]}`, "", `no special token "<s>"`},
		{"tekken.json", strings.Replace(tekkenJSON(t, "", "ab", "cd"), `\\p{L}+`, `\\h`, 1), "", `the escape "\\h" is not supported`},
		{"tekken.json", strings.Replace(tekkenJSON(t, "", "ab", "cd"), `"rank":9`, `"rank":8`, 1), "", "token 9 of the vocabulary has the rank 8"},
	} {
		checkRefusal(t, c.file, c.data, c.config, c.want)
	}
}

func TestChecksumsOfOtherFormats(t *testing.T) {
	seen := map[string]string{}
	for name, files := range map[string]map[string]string{
		"kimi":         {"tiktoken.model": ranksFile("ab", "bc"), "tokenizer_config.json": kimiConfig},
		"qwen":         {"qwen.tiktoken": ranksFile("ab", "bc")},
		"other ranks":  {"qwen.tiktoken": ranksFile("bc", "ab")},
		"other words":  {"hy.tiktoken": ranksFile("ab", "bc")},
		"tekken":       {"tekken.json": tekkenJSON(t, "", "ab", "bc")},
		"other tekken": {"tekken.json": strings.Replace(tekkenJSON(t, "", "ab", "bc"), `\\s+`, `\\s`, 1)},
	} {
		s, err := Open(directory(files))
		if err != nil {
			t.Fatal(err)
		}
		sum, err := s.Checksum()
		if err != nil || seen[sum] != "" {
			t.Errorf("%s and %s have the checksum %s (%v)", name, seen[sum], sum, err)
		}
		seen[sum] = name
	}
}

// tryFile opens a file that a stranger has written: what loads also works.
func tryFile(t *testing.T, file string, data []byte, config string) {
	s, err := Open(directory(map[string]string{file: string(data), "tokenizer_config.json": config}))
	if err != nil {
		return
	}
	if tok, err := s.Tokenizer(); err == nil {
		tok.Decode(tok.Encode("ab <s> é\u0301 1A中\n\n<|im_end|>", true), true)
		_, _ = s.Checksum()
	}
}

func FuzzTiktoken(f *testing.F) {
	f.Add([]byte(ranksFile("ab", "中")), kimiConfig)
	f.Add([]byte("YQ== 0\n"), `{}`)
	f.Fuzz(func(t *testing.T, data []byte, config string) {
		for _, name := range []string{"tiktoken.model", "qwen.tiktoken", "tokenizer.model"} {
			tryFile(t, name, data, config)
		}
	})
}

func FuzzTekken(f *testing.F) {
	f.Add([]byte(tekkenJSON(f, "", "ab", "cd")))
	f.Add([]byte(tekkenJSON(f, `,"special_tokens":[{"rank":0,"token_str":"<s>","is_control":true}]`, "ab", "cd")))
	f.Fuzz(func(t *testing.T, data []byte) { tryFile(t, "tekken.json", data, "{}") })
}

// checkRefusal checks that a directory with a tokenizer's file, and a tokenizer_config.json unless config
// is empty, is refused with a short error that contains want.
func checkRefusal(t *testing.T, file, data, config, want string) {
	t.Helper()
	files := map[string]string{file: data}
	if config != "" {
		files["tokenizer_config.json"] = config
	}
	s, err := Open(directory(files))
	if err == nil {
		_, err = s.Tokenizer()
	}
	if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 1000 {
		t.Errorf("%s: %.1000v; want %s", file, err, want)
	}
}
