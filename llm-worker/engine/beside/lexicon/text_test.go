package lexicon

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// joined returns the characters of parts.
func joined(parts ...[]byte) string {
	var c Characters
	var text string
	for _, p := range parts {
		text += c.Next(p)
	}
	return text + c.Flush()
}

func FuzzCharactersAreJoinedWhereverTheyAreCut(f *testing.F) {
	f.Add("Grüße 🚀 你好", uint64(1))
	f.Add("\uFFFD\U0010FFFFa\u07ff", uint64(2))
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		text = strings.ToValidUTF8(text, "\uFFFD")
		r := rand.New(rand.NewPCG(seed, 1))
		var parts [][]byte
		for rest := []byte(text); len(rest) > 0; {
			n := min(1+r.IntN(5), len(rest))
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		if got := joined(parts...); got != text {
			t.Errorf("%q in %q is %q", text, parts, got)
		}
	})
}

func TestInvalidBytesAreReplaced(t *testing.T) {
	const high, low = "\xed\xa0\xbd", "\xed\xba\x80" // halves of U+1F680, as JSON's escapes are kept
	for want, parts := range map[string][]string{
		"🚀":              {high, low},
		"\U0001F680a":    {high + low + "a"},
		"🚀!":             {high, low[:1], low[1:], "!"},
		"\uFFFDa":        {high, "a"},
		"\uFFFD":         {high},
		"\uFFFD\uFFFD":   {low, high},
		"\uFFFD🚀":        {high, high, low},
		"a\uFFFDb":       {"a\xff", "b"},
		"\uFFFD\uFFFDb":  {"\xe4\xbd", "b"},
		"\uFFFDé":        {high, "\xc3", "\xa9"},
		"x\ufffd\ufffdy": {"x", "\x80\x80y"},
	} {
		var raw [][]byte
		for _, p := range parts {
			raw = append(raw, []byte(p))
		}
		if got := joined(raw...); got != want {
			t.Errorf("%q is %q, not %q", parts, got, want)
		}
	}
}

func TestSpellRefusesIDsThatNoTextHas(t *testing.T) {
	m, err := Load(whencetiny.FS())
	if err != nil {
		t.Fatal(err)
	}
	const text = "<|im_start|>user\nHi, who are you?<|im_end|>\n<|im_start|>assistant\n"
	if got, err := m.Spell(m.Tokenizer.Encode(text, true)); err != nil || got != text {
		t.Errorf("%q, %v", got, err)
	}
	two := slices.Concat(m.Tokenizer.Encode("wh", false), m.Tokenizer.Encode("at", false))
	if slices.Equal(two, m.Tokenizer.Encode("what", false)) {
		t.Fatal("a bad example")
	}
	_, err = m.Spell(two)
	if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != "prompt" {
		t.Error(err)
	}
}
