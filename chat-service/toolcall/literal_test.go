package toolcall

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// convert returns the JSON of the literal at the beginning of s, which arrives in pieces of step
// bytes, and the rest of s.
func convert(l *literal, s string, step func() int) (text, rest string, _ progress) {
	held := ""
	for {
		n := min(step(), len(s))
		held, s = held+s[:n], s[n:]
		n, p := l.read(held, s == "")
		held = held[n:]
		if p == bad {
			l.stop()
		}
		if text += l.take(); p != more || s == "" {
			return text, held + s, p
		}
	}
}

var literalCases = []struct{ quote, text, want string }{
	{"", `'Paris'`, `"Paris"`},
	{"", `"O'Hare"`, `"O'Hare"`},
	{"", `[1, 2.5, -3, +4, 1_000, 007, 0x1F, 1e5, .5, 1.]`, `[1, 2.5, -3, 4, 1000, 7, 31, 1e5, 0.5, 1.0]`},
	{"", `{'a': True, "b": False, 'c': None, 'd': true, 'e': null, 1: 2}`, `{"a": true, "b": false, "c": null, "d": true, "e": null, "1": 2}`},
	{"", `('x', ['y', {}], [], ())`, `["x", ["y", {}], [], []]`},
	{"", `[1, 2, ]`, `[1, 2]`},
	{"", "{ 'a' :\n[ 1 ] }", `{"a": [1]}`},
	{"", `'a\n\t\\\'\"\x41\u00e9\U0001F600\d\/'`, `"a\n\t\\'\"A\u00e9😀\\d/"`},
	{"", `"\ud83d\ude00"`, `"\ud83d\ude00"`},
	{"", `r'\d+'`, `"\\d+"`},
	{"", "b'x'", `"x"`},
	{"", "'''it's \"three\"\nlines'''", `"it's \"three\"\nlines"`},
	{"", `['', "", 'a']`, `["", "", "a"]`},
	{"", "'tab\there, line\nhere, \x01'", `"tab\there, line\nhere, \u0001"`},
	{"", `['it's here', "a "quoted" word"]`, `["it's here", "a \"quoted\" word"]`},
	{"", `[datetime.date(2020, 1, [2]), nan, 1+2, 12abc]`, `["datetime.date(2020, 1, [2])", "nan", "1+2", "12abc"]`},
	{"", `{'a': [1, {'b': 'c']}`, `{"a": [1, {"b": "c"}]}`},
	{"", `{"a":,"b":}`, `{"a": null, "b": null}`},
	{"", `["한국", '😀']`, `["한국", "😀"]`},
	{"", `[` + strings.Repeat("x", 2*maxWord) + `, 1]`, `["` + strings.Repeat("x", 2*maxWord) + `", 1]`},
	{`<|"|>`, `{city:<|"|>Paris "X" \n<|"|>,days:2,deep:true,none:None,list:[<|"|>a,b<|"|>,{k:<|"|><|"|>}]}`, `{"city": "Paris \"X\" \\n", "days": 2, "deep": true, "none": null, "list": ["a,b", {"k": ""}]}`},
	{`<|"|>`, `{<|"|>key<|"|>:"plain \"JSON\"",bare:San Francisco}`, `{"key": "plain \"JSON\"", "bare": "San Francisco"}`},
	{`<|"|>`, `{"city": "Paris", "x": {"a": [1, null, "it's \"q\""]}}`, `{"city": "Paris", "x": {"a": [1, null, "it's \"q\""]}}`},
	{`<|"|>`, `{a:1.50,b:-0,c:1e999}`, `{"a": 1.50, "b": -0, "c": 1e999}`},
}

func TestLiteralsAreConvertedForAnyPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, c := range literalCases {
		if !json.Valid([]byte(c.want)) {
			t.Fatalf("%s is no JSON", c.want)
		}
		for i := range 40 {
			text, rest, p := convert(&literal{quote: c.quote}, c.text+")rest", func() int { return 1 + r.IntN(1+3*i) })
			if text != c.want || rest != ")rest" || p != whole {
				t.Fatalf("%s in pieces of at most %d bytes is %s, with the rest %q (%d); want %s", c.text, 1+3*i, text, rest, p, c.want)
			}
		}
	}
}

func TestAnInvalidLiteralIsCompleted(t *testing.T) {
	for text, want := range map[string]string{
		"{1, 2}":                        `{}`, // a set
		"[1, {2}]":                      `[1, {}]`,
		"{'a': 1}}":                     `{"a": 1}`,
		"[1)":                           `[1]`,
		strings.Repeat("[", 2*maxDepth): strings.Repeat("[", maxDepth) + "null" + strings.Repeat("]", maxDepth),
	} {
		got, _, _ := convert(&literal{}, text, func() int { return len(text) })
		if got != want {
			t.Errorf("%.40s became %.40s, want %.40s", text, got, want)
		}
	}
}

// FuzzLiteral checks that the pieces of a literal do not matter, that the result is JSON, and that a
// JSON value keeps its meaning.
func FuzzLiteral(f *testing.F) {
	for i, c := range literalCases {
		f.Add(c.quote, c.text, uint64(i))
	}
	f.Fuzz(func(t *testing.T, quote, text string, seed uint64) {
		if quote != "" {
			quote = `<|"|>`
		}
		want, wantRest, p := convert(&literal{quote: quote}, text, func() int { return max(1, len(text)) })
		r := rand.New(rand.NewPCG(seed, 5))
		got, rest, _ := convert(&literal{quote: quote}, text, func() int { return 1 + r.IntN(5) })
		if got != want || rest != wantRest {
			t.Errorf("%q in pieces is %q and %q, want %q and %q", text, got, rest, want, wantRest)
		}
		if p != more && !json.Valid([]byte(want)) {
			t.Errorf("%q became %q, which is no JSON", text, want)
		}
	})
}
