package tokenizer

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
)

// TestHostileTextTakesLittleTime: long texts of one kind make backtracking and naive merging
// quadratic.
func TestHostileTextTakesLittleTime(t *testing.T) {
	const size = 100_000
	hostile := map[string]string{
		"spaces":          strings.Repeat(" ", size),
		"spaces, a word":  strings.Repeat(" ", size) + "x",
		"letters":         strings.Repeat("a", size),
		"capitals":        strings.Repeat("A", size),
		"line ends":       strings.Repeat("\n", size),
		"space, line end": strings.Repeat(" \n", size/2),
		"digits":          strings.Repeat("1", size),
		"dots":            strings.Repeat(".", size),
		"apostrophes":     strings.Repeat("'", size),
		"marks":           "e" + strings.Repeat("\u0301\u0327", size/4),
		"special, begun":  strings.Repeat("<|im_", size/5),
		"emoji":           strings.Repeat("👩‍💻", size/11),
		"words":           strings.Repeat(" the lazy dog", size/13),
	}
	whole := tiny(t)
	for name, text := range hostile {
		expectFast(t, name, whole, text)
	}
	for _, file := range []string{"fallback", "unfused", "capitals", "three", "digits", "plain", "bert", "delimited", "unigram", "listed"} {
		tok := loadFile(t, filepath.Join("testdata", file+".json"))
		for name, text := range hostile {
			expectFast(t, name+" with "+file, tok, strings.ToValidUTF8(text[:len(text)/4], ""))
		}
	}
}

// expectFast fails for quadratic work, which takes longer than polltest.Patience. The work takes some
// milliseconds.
func expectFast(t *testing.T, name string, tok *Tokenizer, text string) {
	t.Helper()
	start := time.Now()
	ids := tok.Encode(text, true)
	encoded := time.Since(start)
	tok.Decode(ids, false)
	if all := time.Since(start); all > polltest.Patience {
		t.Errorf("%s took %v, of which Encode took %v", name, all, encoded)
	}
}

// hostileFile is a tokenizer.json with one letter and these sections.
func hostileFile(sections string) string {
	return `{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},` + sections + `}`
}

func split(expression string) string {
	return `"pre_tokenizer":{"type":"Split","pattern":{"Regex":` + strconv.Quote(expression) + `},"behavior":"Isolated"}`
}

func sequence(list, step string, n int) string {
	return `{"type":"Sequence","` + list + `":[` + strings.Repeat(step+",", n-1) + step + `]}`
}

func TestHostileFilesAreRefused(t *testing.T) {
	const replace = `{"type":"Replace","pattern":{"String":"a"},"content":"aa"}`
	long := strings.Repeat("a", 1<<20)
	for name, sections := range map[string]string{
		"many normalizers":         `"normalizer":` + sequence("normalizers", replace, 1000),
		"many pre-tokenizers":      `"pre_tokenizer":` + sequence("pretokenizers", `{"type":"WhitespaceSplit"}`, 1000),
		"many decoders":            `"decoder":` + sequence("decoders", replace, 1000),
		"nested sequences":         `"normalizer":` + strings.Repeat(`{"type":"Sequence","normalizers":[`, 4000) + replace + strings.Repeat(`]}`, 4000),
		"large nested sequences":   `"normalizer":` + strings.Repeat(`{"type":"Sequence","normalizers":[`+strings.Repeat(" ", 400), 4000) + replace + strings.Repeat(`]}`, 4000),
		"a long expression":        split(strings.Repeat("(", 1<<20) + "a" + strings.Repeat(")", 1<<20)),
		"a long literal":           `"normalizer":{"type":"Replace","pattern":{"String":"` + long + `"},"content":""}`,
		"a long replacement":       `"normalizer":{"type":"Replace","pattern":{"String":"a"},"content":"` + long + `"}`,
		"a long prefix":            `"normalizer":{"type":"Prepend","prepend":"` + long + `"}`,
		"a long added token":       `"added_tokens":[{"id":2,"content":"` + long + `"}]`,
		"a negative id":            `"added_tokens":[{"id":-1,"content":"x"}]`,
		"an id out of range":       `"added_tokens":[{"id":4294967295,"content":"x"}]`,
		"the text many times":      `"post_processor":{"type":"TemplateProcessing","single":[` + strings.Repeat(`{"Sequence":{"id":"A"}},`, 9) + `{"Sequence":{"id":"A"}}],"special_tokens":{}}`,
		"many parts of a template": `"post_processor":{"type":"TemplateProcessing","single":[` + strings.Repeat(`{"SpecialToken":{"id":"a"}},`, 999) + `{"Sequence":{"id":"A"}}],"special_tokens":{"a":{"ids":[0]}}}`,
		"many ids of a template":   `"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"a"}}],"special_tokens":{"a":{"ids":[` + strings.Repeat("0,", 999) + `0]}}}`,
	} {
		if _, err := Load([]byte(hostileFile(sections))); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%s: %.2000v", name, err)
		}
	}
}

// TestHostileExpressionsAndNormalizersEndWithAnError: the text is refused. To go on without the match
// would give other tokens without any sign of it.
func TestHostileExpressionsAndNormalizersEndWithAnError(t *testing.T) {
	doubling := `{"type":"Replace","pattern":{"String":"a"},"content":"` + strings.Repeat("a", maxLiteral) + `"}`
	for name, c := range map[string]struct{ sections, text string }{
		"a slow expression":     {split(`(?:a|aa)+$`), strings.Repeat("a", 60) + "b"},
		"a doubling normalizer": {`"normalizer":` + sequence("normalizers", doubling, 8), "a"},
	} {
		tok, err := Load([]byte(hostileFile(c.sections)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if ids, err := tok.EncodeText(c.text, false); !errors.Is(err, ErrLimit) || len(err.Error()) > 1000 {
			t.Errorf("%s: %d ids, %v", name, len(ids), err)
		}
	}
}

func TestDecoderThatDoublesIsBounded(t *testing.T) {
	doubling := `{"type":"Replace","pattern":{"String":"a"},"content":"` + strings.Repeat("a", maxLiteral) + `"}`
	tok, err := Load([]byte(hostileFile(`"decoder":` + sequence("decoders", doubling, 8))))
	if err != nil {
		t.Fatal(err)
	}
	if text := tok.Decode([]uint32{0}, false); len(text) > maxSpelled {
		t.Errorf("a token of %d bytes", len(text))
	}
}
