package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func newTestModel(t testing.TB, o bpeOptions) *bpe {
	t.Helper()
	m, err := newBPE(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// letters returns a vocabulary of the letters, followed by the results of the merges.
func letters(of string, merges ...[2]string) bpeOptions {
	o := bpeOptions{Vocab: make(map[string]uint32), Merges: merges}
	for _, r := range of {
		o.Vocab[string(r)] = uint32(len(o.Vocab))
	}
	for _, m := range merges {
		if _, ok := o.Vocab[m[0]+m[1]]; !ok {
			o.Vocab[m[0]+m[1]] = uint32(len(o.Vocab))
		}
	}
	return o
}

func encode(m *bpe, word string) []uint32 { return m.Encode(nil, word, new(bpeMerger)) }

// naive joins the leftmost pair of the lowest rank, and searches again from the start.
func naive(o bpeOptions, word string) (ids []uint32) {
	symbols := strings.Split(word, "")
	for {
		best, at := len(o.Merges), -1
		for i := 0; i+1 < len(symbols); i++ {
			if rank := slices.Index(o.Merges, [2]string{symbols[i], symbols[i+1]}); rank >= 0 && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			break
		}
		symbols = slices.Replace(symbols, at, at+2, symbols[at]+symbols[at+1])
	}
	for _, s := range symbols {
		ids = append(ids, o.Vocab[s])
	}
	return ids
}

func TestPairsJoinByRankAndThenFromTheLeft(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		tokens := []string{"a", "b", "c"}
		var merges [][2]string
		for range 8 {
			m := [2]string{tokens[r.IntN(len(tokens))], tokens[r.IntN(len(tokens))]}
			if len(m[0]+m[1]) < 8 && !slices.Contains(merges, m) {
				merges = append(merges, m)
				tokens = append(tokens, m[0]+m[1])
			}
		}
		o := letters("abc", merges...)
		m := newTestModel(t, o)
		for range 40 {
			var word strings.Builder
			for range 1 + r.IntN(16) {
				word.WriteByte("abc"[r.IntN(3)])
			}
			if got, want := encode(m, word.String()), naive(o, word.String()); !slices.Equal(got, want) {
				t.Fatalf("%s with %q: %v, want %v", word.String(), merges, got, want)
			}
		}
	}
}

func TestWordThatIsATokenNeedsNoMerges(t *testing.T) {
	o := letters("ab")
	o.Vocab["ab"] = 9
	if got := encode(newTestModel(t, o), "ab"); !slices.Equal(got, []uint32{0, 1}) {
		t.Errorf("with merges: %v", got)
	}
	o.IgnoreMerges = true
	if got := encode(newTestModel(t, o), "ab"); !slices.Equal(got, []uint32{9}) {
		t.Errorf("without: %v", got)
	}
}

func TestUnknownCharacters(t *testing.T) {
	vocab := map[string]uint32{"a": 0, "?": 1, "<0xC3>": 2, "<0xA9>": 3}
	for _, c := range []struct {
		o    bpeOptions
		word string
		want []uint32
	}{
		{bpeOptions{}, "axya", []uint32{0, 0}},
		{bpeOptions{Unk: "?"}, "axya", []uint32{0, 1, 1, 0}},
		{bpeOptions{Unk: "?", FuseUnk: true}, "axyax", []uint32{0, 1, 0, 1}},
		{bpeOptions{ByteFallback: true}, "aé", []uint32{0, 2, 3}},
		{bpeOptions{ByteFallback: true, Unk: "?"}, "èé", []uint32{2, 3, 1}}, // è has a byte without a token
		{bpeOptions{ByteFallback: true, Unk: "?", FuseUnk: true}, "xéya", []uint32{2, 3, 1, 0}},
	} {
		c.o.Vocab = vocab
		if got := encode(newTestModel(t, c.o), c.word); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %s is %v, want %v", c.o, c.word, got, c.want)
		}
	}
}

func TestByteLevelTokensAreFoundByTheirSpelling(t *testing.T) {
	m := newTestModel(t, bpeOptions{ByteLevel: true, Vocab: map[string]uint32{"Ġ": 0, "t": 1, "Ġt": 2, "｜x｜": 3}, Merges: [][2]string{{"Ġ", "t"}}})
	if got := encode(m, " t"); !slices.Equal(got, []uint32{2}) {
		t.Errorf("ids %v", got)
	}
	for token, want := range map[string]uint32{"Ġt": 2, "｜x｜": 3} {
		if id, ok := m.ID(token); !ok || id != want {
			t.Errorf("%s is %d, %v", token, id, ok)
		}
	}
	if _, ok := m.ID(" t"); ok {
		t.Error("ID found a token by its bytes")
	}
}

func TestBytesAreSpelledAndRead(t *testing.T) {
	var all strings.Builder
	for b := range 256 {
		all.WriteByte(byte(b))
	}
	spelled := spellBytes(all.String())
	if raw, ok := readBytes(nil, spelled); !ok || string(raw) != all.String() {
		t.Errorf("%q reads %q", spelled, raw)
	}
	if raw, ok := readBytes([]byte("x"), "Ġ "); ok || string(raw) != "x" {
		t.Errorf("a space represents %q", raw)
	}
}

func TestWordsThatShareASlotOfTheCacheKeepTheirIDs(t *testing.T) {
	m := newTestModel(t, letters("0123456789abcdef", [2]string{"1", "2"}, [2]string{"a", "b"}))
	first := make(map[string][]uint32)
	for pass := range 2 {
		for i := range 2 * cacheSlots {
			word := fmt.Sprintf("%x", i)
			ids := encode(m, word)
			if pass == 0 {
				first[word] = ids
			} else if !slices.Equal(ids, first[word]) {
				t.Fatalf("%s: %v, was %v", word, ids, first[word])
			}
		}
	}
}
