package pattern

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// expressions maps the names of scanner tests to the expressions that the scanners replace.
var expressions = map[string]string{
	"cl100k, one digit":    cl100k1,
	"cl100k, three digits": cl100k3,
	"gpt2":                 gpt2,
	"o200k":                o200k,
	"tekken":               tekken,
	"deepseek":             deepseek,
	"digits":               digits3,
	"han":                  han,
}

func compareScanners(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		return
	}
	for name, text := range expressions {
		e := engines[name]
		got, _ := scanners[text].Matches(nil, s)
		want, err := e.Matches(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s on %q\n got %q\nwant %q", name, s, cutAt(s, got), cutAt(s, want))
		}
	}
}

var engines = func() map[string]Pattern {
	m := make(map[string]Pattern)
	for name, text := range expressions {
		e, err := newExpression(text, oniguruma)
		if err != nil {
			panic(err)
		}
		m[name] = e
	}
	return m
}()

func cutAt(s string, spans []Span) (parts []string) {
	for _, m := range spans {
		parts = append(parts, s[m.Start:m.End])
	}
	return parts
}

func TestScannersEqualTheirExpressions(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "goldens", "texts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	if err := json.Unmarshal(data, &texts); err != nil {
		t.Fatal(err)
	}
	for _, s := range texts {
		compareScanners(t, s)
	}
	// Characters of every class, and the characters named in the expressions, in all short orders.
	alphabet := []string{"a", "Z", "ʰ", "ǅ", "中", "\u0301", "7", "Ⅷ", " ", "\n", "\r", "\t", "\u00a0", "\u2028", "'", "s", "L", "ſ", "e", "v", "/", "-", "€", "。", "\x00", "\u200b", "🙂"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var s strings.Builder
		for range 1 + r.IntN(9) {
			s.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		compareScanners(t, s.String())
	}
}

func FuzzScanners(f *testing.F) {
	for _, s := range []string{"It's 12345 o'clock,\r\n\n  ok?", "HELLO中World'LL  \u00a0 x", "ʰABC\u0301ǅ", " /\n/ a/b", "'ſ''S"} {
		f.Add(s)
	}
	f.Fuzz(compareScanners)
}

func TestEveryCharacterHasItsUnicodeClasses(t *testing.T) {
	for name, want := range map[string]struct {
		expression string
		of         class
	}{
		"letter":   {`\p{L}`, letter},
		"upper":    {`[\p{Lu}\p{Lt}]`, upper},
		"lower":    {`\p{Ll}`, lowerCase},
		"mark":     {`\p{M}`, mark},
		"number":   {`\p{N}`, number},
		"punct":    {`\p{P}`, punct},
		"symbolic": {`\p{S}`, symbolic},
		"space":    {`\s`, space},
	} {
		e, err := newExpression(want.expression, oniguruma)
		if err != nil {
			t.Fatal(err)
		}
		for first := rune(0); first < 0x20000; first += 0x1000 {
			var block strings.Builder
			for r := first; r < first+0x1000; r++ {
				if utf8.ValidRune(r) {
					block.WriteRune(r)
				}
			}
			s := block.String()
			var got []Span
			for i := 0; i < len(s); {
				c, n := classAt(s, i)
				if c&want.of != 0 {
					got = append(got, Span{i, i + n})
				}
				i += n
			}
			if want, err := e.Matches(nil, s); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: characters from %U on differ: %v", name, first, err)
			}
		}
	}
}
