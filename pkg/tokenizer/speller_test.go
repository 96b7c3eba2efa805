package tokenizer

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// respell gives text to a Speller in parts, and decodes its ids.
func respell(t testing.TB, tok *Tokenizer, text string, size func() int) (string, []uint32, error) {
	t.Helper()
	s, err := tok.NewSpeller()
	if err != nil {
		return "", nil, err
	}
	var ids []uint32
	for rest := text; rest != ""; {
		n := 0
		for range max(size(), 1) {
			_, k := utf8.DecodeRuneInString(rest[n:])
			n += k
		}
		more, err := s.Next(rest[:n])
		if err != nil {
			return "", nil, err
		}
		ids, rest = append(ids, more...), rest[n:]
		if len(s.owed) > maxRun+utf8.UTFMax {
			t.Errorf("%d bytes are held back", len(s.owed))
		}
	}
	if err := s.Flush(); err != nil {
		return "", nil, err
	}
	return tok.Decode(ids, true), ids, nil
}

// spellable are the tokenizers with a token, or byte tokens, for every character, except that
// "first" cannot spell the mark that it uses for a space.
var spellable = []string{"whencetiny", "fallback", "first", "capitals", "three"}

func canSpell(name, text string) bool { return name != "first" || !strings.Contains(text, "▁") }

func TestSpellerIsExactInAnyParts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	toks := decoders(t)
	for _, name := range spellable {
		t.Run(name, func(t *testing.T) {
			for _, text := range append(goldenTexts(t), " a", "  a", " ", "\n", "a b", "▁a", "") {
				if !canSpell(name, text) {
					continue
				}
				for _, size := range []func() int{func() int { return 1 }, func() int { return r.IntN(6) }, func() int { return len(text) + 1 }} {
					got, ids, err := respell(t, toks[name], text, size)
					if err != nil || got != text {
						t.Fatalf("%v\n got %q, %v\nwant %q", ids, got, err, text)
					}
				}
			}
		})
	}
}

func TestSpellerIsExactOrFails(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	failed := map[string]int{}
	for name, tok := range decoders(t) {
		for _, text := range append(goldenTexts(t), "aab", "aaab", "baa", "éa", "aé🙂b") {
			got, ids, err := respell(t, tok, text, func() int { return r.IntN(4) })
			if err == nil && got != text {
				t.Errorf("%s: %v\n got %q\nwant %q", name, ids, got, text)
			}
			if err != nil {
				failed[name]++
				if !errors.Is(err, ErrNoSpelling) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if failed["plain"] == 0 || failed["text replaced"] == 0 {
		t.Error("a text without a spelling was spellable", failed)
	}
}

func TestPartThatIsATokenBecomesThatToken(t *testing.T) {
	for _, name := range spellable {
		tok := decoders(t)[name]
		s, err := tok.NewSpeller()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next("a"); err != nil { // some decoders treat the beginning of a text differently
			t.Fatal(err)
		}
		for id := range tok.spelling.tokens {
			token := &tok.spelling.tokens[id]
			if !token.is(whole) || !token.is(known) || token.is(special) || token.text == "" {
				continue
			}
			got, err := s.Next(token.text)
			if err != nil || len(got) != 1 || tok.spelling.tokens[got[0]].text != token.text {
				t.Errorf("%s: %q is spellable %v, %v, not [%d]", name, token.text, got, err, id)
			}
		}
	}
}

func TestSpellerBeginsAgainAfterFlush(t *testing.T) {
	s, err := decoders(t)["fallback"].NewSpeller()
	if err != nil {
		t.Fatal(err)
	}
	var first []uint32
	for i := range 3 {
		ids, err := s.Next(" a")
		if err != nil || s.Flush() != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = ids
		}
		if !slices.Equal(ids, first) {
			t.Error(ids, first)
		}
	}
}

func FuzzSpellerIsExact(f *testing.F) {
	toks := decoders(f)
	f.Add(" hello <0x41> ▁x", []byte{1, 2}, uint8(0))
	f.Add("é\u0301 好🙂", []byte{1}, uint8(1))
	f.Fuzz(func(t *testing.T, text string, sizes []byte, which uint8) {
		name := spellable[int(which)%len(spellable)]
		text = strings.ToValidUTF8(text, "\uFFFD")
		if !canSpell(name, text) {
			return
		}
		i := 0
		got, ids, err := respell(t, toks[name], text, func() int {
			if len(sizes) == 0 {
				return 1
			}
			i++
			return int(sizes[i%len(sizes)]) % 7
		})
		if err != nil || got != text {
			t.Errorf("%v\n got %q, %v\nwant %q", ids, got, err, text)
		}
	})
}

// BenchmarkSpeller measures the cost of a token whose text arrives alone, as usually from servers.
func BenchmarkSpeller(b *testing.B) {
	for _, name := range []string{"whencetiny", "fallback"} {
		b.Run(name, func(b *testing.B) {
			tok := decoders(b)[name]
			dec := tok.NewDecoder(true)
			var parts []string
			for _, id := range tok.Encode(strings.Repeat("The engine stops a moment after its client has gone. ", 20), false) {
				if text := dec.Next(id); text != "" {
					parts = append(parts, text)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				s, err := tok.NewSpeller()
				if err != nil {
					b.Fatal(err)
				}
				for _, part := range parts {
					if _, err := s.Next(part); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(parts)), "ns/token")
		})
	}
}

func goldenTexts(t testing.TB) []string {
	t.Helper()
	var texts []string
	readJSON(t, filepath.Join("testdata", "goldens", "texts.json"), &texts)
	return texts
}
