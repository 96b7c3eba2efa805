package llamacpp_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/llamacpp/llamacpptest"
)

// incomplete is the server's validate_utf8: a character that begins in the last four bytes may be
// cut off. The server does not check the bytes after the first byte of the character.
func incomplete(text string) bool {
	for i := 1; i <= 4 && i <= len(text); i++ {
		c := text[len(text)-i]
		if c&0xE0 == 0xC0 && i < 2 || c&0xF0 == 0xE0 && i < 3 || c&0xF8 == 0xF0 && i < 4 {
			return true
		}
	}
	return false
}

// served plays an answer with any tokens as the server does. After token i, the server has counted
// count(i) tokens.
func served(m *lexicon.Model, ids []uint32, count func(i int) int) besidetest.Script {
	return func(a *besidetest.Answer) error {
		from, text := 0, ""
		for i, id := range ids {
			piece, _ := m.Tokenizer.Spells(id)
			if text += piece; incomplete(text) {
				continue
			}
			a.Send(llamacpptest.Event(map[string]any{"content": m.Tokenizer.Decode(ids[from:i+1], true), "tokens": []uint32{id}, "tokens_predicted": count(i), "tokens_evaluated": 3, "stop": false}))
			from, text = i+1, ""
		}
		a.Send(llamacpptest.Event(map[string]any{"content": "", "tokens": []uint32{}, "tokens_predicted": len(ids), "tokens_evaluated": 3, "stop": true, "stop_type": "limit"}))
		return nil
	}
}

// one counts tokens as they are sent.
func one(i int) int { return i + 1 }

// batches returns the count of a server that accepts three of n tokens at a time, and counts them
// before it sends them.
func batches(n int) func(i int) int {
	return func(i int) int { return min(n, (i/3+1)*3) }
}

// spelled returns the tokens with these bytes.
func spelled(t *testing.T, m *lexicon.Model, texts ...string) []uint32 {
	t.Helper()
	var ids []uint32
	for _, text := range texts {
		n := len(ids)
		for id := range uint32(m.Tokenizer.VocabSize()) {
			if piece, ok := m.Tokenizer.Spells(id); ok && piece == text {
				ids = append(ids, id)
				break
			}
		}
		if len(ids) == n {
			t.Fatalf("no token spells %q", text)
		}
	}
	return ids
}

func TestBytesThatAreNotUTF8DoNotEndTheStream(t *testing.T) {
	t.Parallel()
	m := model(t)
	for name, texts := range map[string][]string{
		"a byte":                           {"\xf0", "one"},
		"a byte after text":                {"one", "\xf0", "one", "one"},
		"a byte, and a short token":        {"\xf0", "a", "one"},
		"a byte, and two short tokens":     {"\xf0", "a", "b", "one"},
		"a byte, and a part of a sequence": {"\xf0", "\x88녕", "one"},
		"a byte, and a character in parts": {"\xf0", "\xe4\xbd", "\xa0", "one"},
		"a byte, twice":                    {"\xf0", "\xf0", "one"},
	} {
		ids := spelled(t, m, texts...)
		e, _ := subject(t).Start(t, served(m, ids, one))
		r := besidetest.Read(t.Context(), e, besidetest.Ask(uint32(len(ids))), nil)
		if r.Err != nil || !slices.Equal(r.Tokens, ids) || int(r.End.GetUsage().GetCompletionTokens()) != len(ids) {
			t.Errorf("%s: got %v, want %v; %v, %v", name, r.Tokens, ids, r.End, r.Err)
		}
	}
}

// TestGuessedTokensDecodeToTheTextOfTheServer: the server replaces bytes that are not UTF-8, so the
// engine may find other tokens than the model chose, but as many, and with the same text.
func TestGuessedTokensDecodeToTheTextOfTheServer(t *testing.T) {
	t.Parallel()
	m := model(t)
	var parts, whole []uint32
	for id := range uint32(min(m.Tokenizer.VocabSize(), besidetest.Vocab)) {
		switch piece, ok := m.Tokenizer.Spells(id); {
		case !ok || id == besidetest.EOS:
		case utf8.ValidString(piece):
			whole = append(whole, id)
		default:
			parts = append(parts, id)
		}
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that can be repeated
	var ids []uint32
	for len(ids) < 400 {
		for range random.IntN(4) {
			ids = append(ids, parts[random.IntN(len(parts))])
		}
		ids = append(ids, whole[random.IntN(len(whole))])
	}
	ids = append(ids, spelled(t, m, "a", "b", "c")...) // the last event has all text
	e, _ := subject(t).Start(t, served(m, ids, one))
	r := besidetest.Read(t.Context(), e, besidetest.Ask(uint32(len(ids))), nil)
	if r.Err != nil || len(r.Tokens) != len(ids) || m.Tokenizer.Decode(r.Tokens, false) != m.Tokenizer.Decode(ids, false) {
		t.Errorf("got %d tokens of %d: %v\ngot  %q\nwant %q", len(r.Tokens), len(ids), r.Err, m.Tokenizer.Decode(r.Tokens, false), m.Tokenizer.Decode(ids, false))
	}
}

// TestTokensThatAreCountedAheadAreNotLost: an older server with a draft model counts the drafted
// tokens that it accepts together before it sends the first one.
func TestTokensThatAreCountedAheadAreNotLost(t *testing.T) {
	t.Parallel()
	m := model(t)
	for _, text := range []string{"one two three four five", "Send 🚀🌙 emojis", "你好, こんにちは。", "🚀 and more"} {
		ids := m.Tokenizer.Encode(text, false)
		e, _ := subject(t).Start(t, served(m, ids, batches(len(ids))))
		r := besidetest.Read(t.Context(), e, besidetest.Ask(uint32(len(ids))), nil)
		if r.Err != nil || !slices.Equal(r.Tokens, ids) || int(r.End.GetUsage().GetCompletionTokens()) != len(ids) {
			t.Errorf("%q: got %v, want %v; %v, %v", text, r.Tokens, ids, r.End, r.Err)
		}
	}
	special := uint32(0)
	for ; special < uint32(m.Tokenizer.VocabSize()); special++ {
		if _, ok := m.Tokenizer.Spells(special); !ok {
			break
		}
	}
	ids := slices.Concat([]uint32{special}, spelled(t, m, "one", "\xf0", "one", "\xf0", "a", "one"), []uint32{special}, spelled(t, m, "one"))
	e, _ := subject(t).Start(t, served(m, ids, batches(len(ids))))
	if r := besidetest.Read(t.Context(), e, besidetest.Ask(uint32(len(ids))), nil); r.Err != nil || !slices.Equal(r.Tokens, ids) {
		t.Errorf("got %v, want %v; %v", r.Tokens, ids, r.Err)
	}
}

func TestTextThatNoTokensSpellEndsTheStream(t *testing.T) {
	t.Parallel()
	m := model(t)
	for _, text := range []string{strings.Repeat("\ufffd", 170) + "one", strings.Repeat("a\ufffd", 100) + "one", strings.Repeat("\ufffd", 10) + "\U0010fffe\u0001\ufffd" + "one"} {
		e, _ := subject(t).Start(t, func(a *besidetest.Answer) error {
			a.Send(llamacpptest.Event(map[string]any{"content": text, "tokens": spelled(t, m, "one"), "tokens_predicted": 15, "stop": false}))
			return nil
		})
		if r := besidetest.Read(t.Context(), e, besidetest.Ask(20), nil); r.Err == nil || !strings.Contains(r.Err.Error(), "run this model") {
			t.Error(r.Tokens, r.Err)
		}
	}
}
