package tokenizer

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// decoders returns tokenizers with every kind of decoder, by file name, including testdata/*.json.
func decoders(t testing.TB) map[string]*Tokenizer {
	t.Helper()
	toks := map[string]*Tokenizer{"whencetiny": tiny(t)}
	for _, name := range []string{"fallback", "unknown", "unfused", "first", "capitals", "plain", "three"} {
		toks[name] = loadFile(t, filepath.Join("testdata", name+".json"))
	}
	// No common file has these decoders, but the format allows them.
	for name, decoder := range map[string]string{
		"ends cut":      `{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":"a","start":2,"stop":3}]}`,
		"text replaced": `{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Replace","pattern":{"String":"aab"},"content":"<aab>"}]}`,
		"bytes, cut":    `{"type":"Sequence","decoders":[{"type":"ByteLevel"},{"type":"Strip","content":"a","start":1,"stop":1},{"type":"Metaspace","replacement":"b","prepend_scheme":"always"}]}`,
		"late steps":    `{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Metaspace","replacement":"a","prepend_scheme":"first"},{"type":"Strip","content":"b","start":1,"stop":0}]}`,
		"regex":         `{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"Regex":"a+"},"content":"-"},{"type":"ByteFallback"}]}`,
	} {
		toks[name] = load(t, fmt.Appendf(nil, `{"model":{"type":"BPE","merges":[],"vocab":{"a":0,"b":1,"aa":2,"aab":3,"ba":4,"c":5,"":6,
			"<0x61>":7,"<0xC3>":8,"<0xA9>":9,"<0xF0>":10,"<0x9F>":11,"<0x99>":12,"<0x82>":13,"Ã":14,"©":15,"ba aa":16}},"decoder":%s}`, decoder))
	}
	return toks
}

// decodeInParts decodes ids a few at a time, and checks the promises of each part.
func decodeInParts(t *testing.T, d *Decoder, ids []uint32, size func() int) string {
	t.Helper()
	var text strings.Builder
	for len(ids) > 0 {
		n := min(max(size(), 0), len(ids))
		part := d.Next(ids[:n]...)
		if !utf8.ValidString(part) {
			t.Errorf("Next returned a part of a character: %q", part)
		}
		text.WriteString(part)
		ids = ids[n:]
		if held := len(d.cut) + len(d.run.bytes); held > maxRun+utf8.UTFMax {
			t.Errorf("%d bytes are held back", held)
		}
	}
	text.WriteString(d.Flush())
	return text.String()
}

func TestDecoderInAnySplitsIsDecode(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for name, tok := range decoders(t) {
		t.Run(name, func(t *testing.T) {
			for _, skip := range []bool{false, true} {
				d := tok.NewDecoder(skip)
				for range 1500 {
					ids := make([]uint32, r.IntN(24))
					within := tok.VocabSize() + 2 // some ids have no token
					if r.IntN(2) == 0 {
						within = min(within, 280) // mostly bytes and byte tokens
					}
					for i := range ids {
						ids[i] = uint32(r.IntN(within))
					}
					want := tok.Decode(ids, skip)
					got := decodeInParts(t, d, ids, func() int { return r.IntN(4) })
					if got != want {
						t.Fatalf("%v, skipping special tokens: %v\n got %q\nwant %q", ids, skip, got, want)
					}
				}
			}
		})
	}
}

func FuzzDecoderEqualsDecode(f *testing.F) {
	toks := decoders(f)
	names := make([]string, 0, len(toks))
	for name := range toks {
		names = append(names, name)
	}
	slices.Sort(names)
	f.Add([]byte{1, 0, 2, 0, 200, 0, 201, 0}, []byte{1, 2}, uint8(0), false)
	f.Add([]byte{10, 0, 11, 0, 12, 0, 13, 0, 8, 0}, []byte{1}, uint8(3), true)
	f.Fuzz(func(t *testing.T, data, sizes []byte, which uint8, skip bool) {
		tok := toks[names[int(which)%len(names)]]
		var ids []uint32
		for ; len(data) >= 2; data = data[2:] {
			ids = append(ids, uint32(binary.LittleEndian.Uint16(data))%uint32(tok.VocabSize()+1))
		}
		i := 0
		size := func() int {
			if len(sizes) == 0 {
				return 1
			}
			i++
			return int(sizes[i%len(sizes)])%5 + i%2
		}
		if got, want := decodeInParts(t, tok.NewDecoder(skip), ids, size), tok.Decode(ids, skip); got != want {
			t.Errorf("%v\n got %q\nwant %q", ids, got, want)
		}
	})
}

// stepwise decodes as the format describes it: every step converts all tokens before the next step
// begins. The Decoder's phases must have the same result.
func stepwise(steps []func([]string) []string, tokens ...string) string {
	for _, step := range steps {
		tokens = step(tokens)
	}
	return strings.Join(tokens, "")
}

func TestDecoderEqualsTheStepsOfTheFile(t *testing.T) {
	each := func(f func(i int, s string) string) func([]string) []string {
		return func(tokens []string) []string {
			out := make([]string, len(tokens))
			for i, s := range tokens {
				out[i] = f(i, s)
			}
			return out
		}
	}
	fallback := func(tokens []string) (out []string) {
		var run []byte
		end := func() {
			if utf8.Valid(run) {
				out = append(out, string(run))
			} else {
				out = append(out, slices.Repeat([]string{"\uFFFD"}, len(run))...)
			}
			run = nil
		}
		for _, s := range tokens {
			if b, ok := byteToken(s); ok {
				run = append(run, b)
				continue
			}
			if run != nil {
				end()
			}
			out = append(out, s)
		}
		if run != nil {
			end()
		}
		return out
	}
	fuse := func(tokens []string) []string { return []string{strings.Join(tokens, "")} }
	strip := func(c string, start, stop int) func([]string) []string {
		return each(func(_ int, s string) string { return (&stripFile{c, start, stop}).strip(s) })
	}
	marks := func(m string) func([]string) []string {
		return each(func(i int, s string) string {
			if i == 0 {
				return strings.ReplaceAll(s, m, "")
			}
			return strings.ReplaceAll(s, m, " ")
		})
	}
	replace := func(old, new string) func([]string) []string {
		return each(func(_ int, s string) string { return strings.ReplaceAll(s, old, new) })
	}
	bytewise := func(tokens []string) []string {
		var raw []byte
		for _, s := range tokens {
			if b, ok := readBytes(nil, s); ok {
				raw = append(raw, b...)
			} else {
				raw = append(raw, s...)
			}
		}
		return []string{string(appendLossy(nil, raw))}
	}
	steps := map[string][]func([]string) []string{
		"ends cut":      {fallback, fuse, strip("a", 2, 3)},
		"text replaced": {fallback, fuse, replace("aab", "<aab>")},
		"bytes, cut":    {bytewise, strip("a", 1, 1), marks("b")},
		"late steps":    {fallback, marks("a"), strip("b", 1, 0)},
	}
	toks := decoders(t)
	vocab := []string{"a", "b", "aa", "aab", "ba", "c", "", "<0x61>", "<0xC3>", "<0xA9>", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>", "Ã", "©", "ba aa"}
	r := rand.New(rand.NewPCG(5, 6))
	for name, steps := range steps {
		for range 3000 {
			var ids []uint32
			var tokens []string
			for range r.IntN(10) {
				id := r.IntN(len(vocab))
				ids, tokens = append(ids, uint32(id)), append(tokens, vocab[id])
			}
			want := stepwise(steps, tokens...)
			if got := decodeInParts(t, toks[name].NewDecoder(false), ids, func() int { return r.IntN(3) }); got != want {
				t.Fatalf("%s: %q\n got %q\nwant %q", name, tokens, got, want)
			}
		}
	}
}

func TestNextNeverReturnsHalfACharacter(t *testing.T) {
	tok := tiny(t)
	d := tok.NewDecoder(false)
	var parts []string
	ids := tok.Encode("a👍🏽é", false)
	for _, id := range ids {
		parts = append(parts, d.Next(id))
	}
	parts = slices.DeleteFunc(append(parts, d.Flush()), func(s string) bool { return s == "" })
	if want := []string{"a", "👍", "🏽", "é"}; !slices.Equal(parts, want) {
		t.Errorf("parts %q, want %q", parts, want)
	}
}

func TestFlushReplacesIncompleteCharactersAndResets(t *testing.T) {
	tok := tiny(t)
	ids := tok.Encode("👍", false)
	if len(ids) < 3 {
		t.Fatalf("the embedded vocabulary now has a token for the character: %v", ids)
	}
	d := tok.NewDecoder(false)
	for range 2 {
		if got := d.Next(ids[:len(ids)-1]...); got != "" {
			t.Errorf("Next returned %q of an incomplete character", got)
		}
		if got := d.Flush(); got != "\uFFFD" {
			t.Errorf("Flush returned %q", got)
		}
	}
	if got := d.Next(ids...); got != "👍" {
		t.Errorf("after Flush: %q", got)
	}
}

func TestLeadingSpaceIsRemovedOnce(t *testing.T) {
	tok := loadFile(t, filepath.Join("testdata", "fallback.json"))
	d := tok.NewDecoder(true)
	for range 2 {
		var got string
		for _, id := range tok.Encode("the  the", true) {
			got += d.Next(id)
		}
		if got += d.Flush(); got != "the  the" {
			t.Errorf("got %q", got)
		}
	}
}

func TestLongRunOfByteTokensStreams(t *testing.T) {
	tok := loadFile(t, filepath.Join("testdata", "fallback.json"))
	text := strings.Repeat("𒀀", 1000) // four byte tokens each
	ids := tok.Encode(text, false)
	d := tok.NewDecoder(false)
	var got strings.Builder
	waited := 0
	for _, id := range ids {
		part := d.Next(id)
		got.WriteString(part)
		if waited++; part != "" {
			waited = 0
		}
		if waited > maxRun+3 {
			t.Fatalf("no text for %d tokens", waited)
		}
	}
	got.WriteString(d.Flush())
	if got.String() != text {
		t.Error("the decoded text differs")
	}
}

func TestInvalidRunOfByteTokensIsReturnedAtOnce(t *testing.T) {
	tok := loadFile(t, filepath.Join("testdata", "fallback.json"))
	bad, _ := tok.TokenID("<0xFF>")
	d := tok.NewDecoder(false)
	for i := range 1000 {
		if got := d.Next(bad); got != "\uFFFD" {
			t.Fatalf("byte %d: %q", i, got)
		}
	}
}

func TestDecodingEnglishAllocatesNothing(t *testing.T) {
	for name, tok := range decoders(t) {
		if name == "plain" {
			continue // joins tokens with spaces, so that each is a new string
		}
		ids := tok.Encode("the quick brown fox jumps over the lazy dog", false)
		d := tok.NewDecoder(true)
		d.Next(ids[0])
		n := 0
		if got := testing.AllocsPerRun(100, func() { d.Next(ids[n%len(ids)]); n++ }); got != 0 && len(d.steps) == 0 {
			t.Errorf("%s: %v allocations a token", name, got)
		}
	}
}
