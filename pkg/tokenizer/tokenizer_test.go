package tokenizer

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/rangetable"
)

func TestInvalidUTF8IsReadAsInRust(t *testing.T) {
	for in, want := range map[string]string{
		"a\xffb":                        "a\uFFFDb",
		"\xff\xfe":                      "\uFFFD\uFFFD",
		"\xe4\xbd":                      "\uFFFD", // the beginning of a character is one subpart
		"\xe4\xbdA":                     "\uFFFDA",
		"\xf0\x9f\x98":                  "\uFFFD",
		"\xf0\x9f\x98\xf0\x9f\x98\x80":  "\uFFFD😀",
		"\xc0\xaf":                      "\uFFFD\uFFFD",       // overlong
		"\xed\xa0\x80":                  "\uFFFD\uFFFD\uFFFD", // a surrogate
		"\xf4\x90\x80\x80":              "\uFFFD\uFFFD\uFFFD\uFFFD",
		"\xf0\x80\x80\x41":              "\uFFFD\uFFFD\uFFFDA",
		"\x61\xf1\x80\x80\xe1\x80\xc2b": "a\uFFFD\uFFFD\uFFFDb", // the standard's own example, table 3-11
		"\x80\xbf":                      "\uFFFD\uFFFD",
		"fine é 😀":                      "fine é 😀",
	} {
		if got := string(appendLossy(nil, []byte(in))); got != want {
			t.Errorf("%q reads %q, want %q", in, got, want)
		}
		tok := tiny(t)
		if got := tok.Decode(tok.Encode(in, false), false); got != want {
			t.Errorf("%q comes back as %q, want %q", in, got, want)
		}
	}
}

// FuzzLossyInParts: the held-back bytes are never longer than the beginning of a character, and
// never wrong.
func FuzzLossyInParts(f *testing.F) {
	f.Add([]byte("a\xf0\x9f\x98\xf0\x9f\x98\x80\xe4\xbd"), uint8(2))
	f.Fuzz(func(t *testing.T, raw []byte, n uint8) {
		var got, cut []byte
		for rest := raw; len(rest) > 0; {
			size := min(1+int(n)%7, len(rest))
			cut = append(slices.Clone(cut), rest[:size]...)
			rest = rest[size:]
			got, cut = appendCertain(got, cut)
			if len(cut) > 3 {
				t.Fatalf("holds back %q", cut)
			}
		}
		got = appendLossy(got, cut)
		if want := strings.ToValidUTF8(string(raw), ""); strings.ReplaceAll(string(got), "\uFFFD", "") != strings.ReplaceAll(want, "\uFFFD", "") {
			t.Errorf("%q became %q", raw, got)
		}
		if want := appendLossy(nil, raw); string(got) != string(want) {
			t.Errorf("%q in parts is %q, else %q", raw, got, want)
		}
	})
}

func TestSpecialTokensInTextAreThatToken(t *testing.T) {
	tok := tiny(t)
	start, _ := tok.TokenID("<|im_start|>")
	end, _ := tok.TokenID("<|im_end|>")
	ids := tok.Encode("<|im_start|>user\nHi<|im_end|><|im_end", false)
	if ids[0] != start || slices.Index(ids, end) < 0 || slices.Index(ids, end) != len(ids)-1-len(tok.Encode("<|im_end", false)) {
		t.Errorf("ids %v", ids)
	}
	if got := tok.Decode(ids, true); got != "user\nHi<|im_end" {
		t.Errorf("without special tokens: %q", got)
	}
	if got := tok.Decode(append(ids, 1<<20, noToken), false); got != "<|im_start|>user\nHi<|im_end|><|im_end" {
		t.Errorf("with ids that have no token: %q", got)
	}
}

func TestSplitBehaviors(t *testing.T) {
	for behavior, want := range map[string][2]string{
		"Isolated":           {"the - final - - countdown", "the - final - - countdown"},
		"Removed":            {"the final countdown", "- - -"},
		"Contiguous":         {"the - final -- countdown", "the - final -- countdown"},
		"MergedWithPrevious": {"the- final- - countdown", "the -final - -countdown"},
		"MergedWithNext":     {"the -final - -countdown", "the- final- - countdown"},
	} {
		for i, invert := range []bool{false, true} {
			for _, pattern := range []string{`{"String":"-"}`, `{"Regex":"-"}`} {
				tok := load(t, small(fmt.Sprintf(`"pre_tokenizer":{"type":"Split","pattern":%s,"behavior":%q,"invert":%v}`, pattern, behavior, invert)))
				var got []string
				for _, p := range tok.stages[0].split(nil, piece{text: "the-final--countdown"}, new(scratch)) {
					got = append(got, p.text)
				}
				if strings.Join(got, " ") != want[i] {
					t.Errorf("%s, invert %v: %q, want %q", behavior, invert, got, want[i])
				}
			}
		}
	}
}

func TestLongRunsOfMarksComposeAsInUnicode(t *testing.T) {
	for _, s := range []string{"", "abc", "e\u0301", "a\u0323\u0308\u0301", "각", "\u1100\u1161\u11a8\u11a8", "q\u0307\u0323", "\u0344a\u0344", "한글 e\u0302\u0301x", "ﬁ\u0323①", "\u212b\u0041\u030a", "\u0958\u093c", "ö\u0304\u0323"} {
		for form, decomposed := range map[norm.Form]norm.Form{norm.NFC: norm.NFD, norm.NFKC: norm.NFKD, norm.NFD: norm.NFD, norm.NFKD: norm.NFKD} {
			if got, want := composeLong(s, form, decomposed), form.String(s); got != want {
				t.Errorf("form %v of %+q: %+q, want %+q", form, s, got, want)
			}
		}
	}
	long := "a" + strings.Repeat("\u0301\u0323", 30)
	p := compose(norm.NFC, norm.NFD)(piece{text: long})
	if want := "\u1ea1" + strings.Repeat("\u0323", 29) + strings.Repeat("\u0301", 30); p.text != want {
		t.Errorf("got %+q", p.text)
	}
	// golang.org/x/text counts marks from the place where a letter composes with the character
	// before it.
	for _, joining := range []string{"\u1161", "\u11a8", "ﾞ", "\u0f71"} {
		text := "a" + strings.Repeat(joining+strings.Repeat("\u0301", 5), 10)
		for form, decomposed := range map[norm.Form]norm.Form{norm.NFC: norm.NFD, norm.NFKC: norm.NFKD} {
			if p := compose(form, decomposed)(piece{text: text}); strings.Contains(p.text, "\u034f") {
				t.Errorf("%+q became %+q", text, p.text)
			}
		}
	}
}

func TestNormalizationUsesUnicode9(t *testing.T) {
	assigned := rangetable.Assigned("9.0.0")
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		s := string(r)
		p := norm.NFKC.PropertiesString(s)
		inert := p.CCC() == 0 && p.BoundaryBefore() && norm.NFKD.String(s) == s
		if want := utf8.ValidRune(r) && !unicode.Is(assigned, r) && !inert; isNewer(r) != want {
			t.Errorf("%U is newer: %v, want %v", r, isNewer(r), want)
		}
	}
	nfc := compose(norm.NFC, norm.NFD)
	for text, want := range map[string]string{
		"a\u08ce\u08cf":                        "a\u08ce\u08cf", // Unicode 14 puts the second mark first
		"a\u0301\u1acd\u0323":                  "á\u1acd\u0323",
		"\U00011935\U00011930":                 "\U00011935\U00011930",
		"e\u0301" + "\u1dfa" + "e\u0301\u0323": "é\u1dfaẹ\u0301",
	} {
		if got := nfc(piece{text: text}).text; got != want {
			t.Errorf("%+q became %+q, want %+q", text, got, want)
		}
	}
}

func TestConcurrentCallsAgree(t *testing.T) {
	for _, name := range []string{"fallback", "capitals", "digits"} {
		tok := loadFile(t, filepath.Join("testdata", name+".json"))
		var texts []string
		readJSON(t, filepath.Join("testdata", "goldens", "texts.json"), &texts)
		want := make([][]uint32, len(texts))
		for i, text := range texts {
			want[i] = tok.Encode(text, true)
		}
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := range texts {
					i = (i + worker*37) % len(texts)
					if got := tok.Encode(texts[i], true); !slices.Equal(got, want[i]) {
						t.Errorf("Encode(%q) = %v, was %v", texts[i], got, want[i])
					}
				}
			})
		}
		wg.Wait()
	}
}

func FuzzEncodeDecode(f *testing.F) {
	var texts []string
	readJSON(f, filepath.Join("testdata", "goldens", "texts.json"), &texts)
	for _, text := range texts {
		f.Add(text)
	}
	tok := tiny(f)
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Encode(text, false)
		for _, id := range ids {
			if int(id) >= tok.VocabSize() {
				t.Fatalf("id %d of %d", id, tok.VocabSize())
			}
		}
		if !utf8.ValidString(text) {
			text = string(appendLossy(nil, []byte(text)))
		}
		if got := tok.Decode(ids, false); got != text {
			t.Errorf("%q comes back as %q", text, got)
		}
	})
}
