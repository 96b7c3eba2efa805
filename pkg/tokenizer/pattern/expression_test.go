package pattern

import (
	"slices"
	"strings"
	"testing"
)

// TestExpressionsMeanWhatTheyMeanInOniguruma has the matches of the Rust library's engine.
// scripts/fidelity compares with that library itself.
func TestExpressionsMeanWhatTheyMeanInOniguruma(t *testing.T) {
	for _, c := range []struct {
		expression, text string
		want             string // the matches, with | between them
	}{
		// Classes.
		{`[\p{L}&&[^x]]+|.`, "the fox", "the| |fo|x"},
		{`[[:alpha:]]+|.`, "the fox", "the| |fox"},
		{`[a-z&&aeiou&&i-z]`, "aeiou", "i|o|u"},
		{`[^a-z&&[^x]]+`, "ab-x,c", "-x,"},
		{`[a-z&&[^x]y]+`, "axy", "a|y"},
		{`[&&a]|[a&&]`, "a", ""},
		{` ?[^(\s|[.,])]+`, "a b.c (d)", "a| b|c|d"},
		{`[]a]+`, "a]b", "a]"},
		{`[a-c-e]+`, "b-de", "b-|e"},
		{`[\w-]+`, "a-b c", "a-b|c"},
		{`[[:^space:]&&[:^punct:]]+`, "a+b c", "a|b|c"},
		{`[[:punct:]]`, "+§_", "+|§|_"},
		{`\p{Punct}`, "+§_", "§|_"},
		{`\p{^L}+|\P{^Lu}`, "aB1", "B|1"},
		{`\p{Han}+|[\p{L}&&\p{Latin}]+`, "中文abc𮯰ж", "中文|abc|𮯰"},
		{`\p{Emoji_Presentation}|\p{Emoji}+`, "a🙂1#", "🙂|1#"},
		{`[\h]+|\H`, "0aFg", "0aF|g"},
		{`[\x41\x{42}\u0043]+`, "ABCD", "ABC"},
		// Quantifiers.
		{`a{2}+`, "aaaaa", "aaaa"},
		{`a{2,3}+a`, "aaaaaaa", "aaaaaaa"},
		{`a{,2}`, "aaa", "aa|a"},
		{`ba{2}?`, "baab", "baa|b"},
		{`a{2,1}a`, "aaaa", "aaa"},
		{`a?+a|a*+a|a++a`, "a", ""},
		{`(?>a+)b|a`, "aab", "aab"},
		{`a{x|a{,}`, "a{xa{,}", "a{x|a{,}"},
		{`(?:a?)*b`, "aab", "aab"},
		{`x??y`, "xy", "xy"},
		// Line ends and grapheme clusters.
		{`.+`, "a\nb\rc", "a|b\rc"},
		{`(?m:.+)`, "a\nb", "a\nb"},
		{`^.`, "ab\ncd\n", "a|c"},
		{`.$`, "ab\ncd\n", "b|d"},
		{`a\Z`, "a\na\n", "a"},
		{`\Ga`, "aaba", "a|a"},
		{`\R`, "a\r\nb\u2028\v", "\r\n|\u2028|\v"},
		{`\R\n`, "\r\n", ""},
		{`\X`, "e\u0301👨‍👩‍👧🇫🇷🇯🇵\r\n각", "e\u0301|👨‍👩‍👧|🇫🇷|🇯🇵|\r\n|각"},
		// Looking around.
		{`(?<=a|bc)x`, "ax bcx cx", "x|x"},
		{`(?<=a+)x.`, "aaax1 bx2", "x1"},
		{`(?<!\w)\d+`, "1 a2 3", "1|3"},
		{`(?=(\d{3})+(?!\d))\d`, "12345", "3"},
		{`\bfoo\b.`, "foo! foobar éfoo?", "foo!"},
		// Ignoring case.
		{`(?i:'s)`, "'s'S'ſ", "'s|'S|'ſ"},
		{`(?i:ssa)`, "ßaSſA", "ßa|SſA"},
		{`(?i:i\x{307})`, "i̇İI", "i̇|İ"},
		{`(?i:[ß])`, "SSẞß", "SS|ẞ|ß"},
		{`(?i:[^ß]+)`, "sßs", "s|s"},
		{`(?i:k)`, "kK\u212A", "k|K|\u212A"},
		{`(?i:\p{Lu})|(?i:[\p{Lu}])`, "a", "a"},
		{`(?i:\p{Lu})`, "aA", "A"},
		{`a(?i)b|c`, "aB C aC", "aB|aC"},
		{`(?x) a b # no
		  | c`, "ab c", "ab|c"},
	} {
		e, err := New(c.expression)
		if err != nil {
			t.Errorf("%s: %v", c.expression, err)
			continue
		}
		spans, err := e.Matches(nil, c.text)
		spans = slices.DeleteFunc(spans, func(s Span) bool { return s.Start == s.End })
		if got := strings.Join(cutAt(c.text, spans), "|"); got != c.want || err != nil {
			t.Errorf("%s on %q: %q, %v; want %q", c.expression, c.text, got, err, c.want)
		}
	}
}

// TestTiktokenHasASyntaxOfItsOwn: the same expression has another meaning in a tiktoken file.
func TestTiktokenHasASyntaxOfItsOwn(t *testing.T) {
	for _, c := range []struct{ expression, text, want string }{
		{`\d{1,3}+`, "12345", "123|45"},
		{`a{2}?`, "aaaa", "aa|aa"},
		{`.$`, "a\nb", "b"},
		{`(?s:.+)`, "a\nb", "a\nb"},
		{`\pL+|\p{Script=Han}+`, "ab1中", "ab|中"},
		{`(?i:\p{Lu})`, "aA", "a|A"},
		{`(?i:ss|K)`, "ßsSẞ\u212A", "sS|\u212A"},
	} {
		e, err := NewTiktoken(c.expression)
		if err != nil {
			t.Errorf("%s: %v", c.expression, err)
			continue
		}
		spans, err := e.Matches(nil, c.text)
		if got := strings.Join(cutAt(c.text, spans), "|"); got != c.want || err != nil {
			t.Errorf("%s on %q: %q, %v; want %q", c.expression, c.text, got, err, c.want)
		}
	}
	for _, expression := range []string{`[[:alpha:]]`, `[a--b]`, `\h`, `\R`, `\X`, `\G`, `\Z`} {
		if _, err := NewTiktoken(expression); err == nil || !strings.Contains(err.Error(), "is not supported") {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

func TestUnsupportedExpressionsAreRefusedByName(t *testing.T) {
	for expression, want := range map[string]string{
		`(a)\1`:         `the escape "\\1" is not supported`,
		`(?<n>a)\k<n>`:  `the escape "\\k" is not supported`,
		`(?<n>a\g<n>?)`: `the escape "\\g" is not supported`,
		`a\Kb`:          `the escape "\\K" is not supported`,
		`\yab`:          `the escape "\\y" is not supported`,
		`(?~ab)`:        "an absent group",
		`(?(1)a|b)`:     "a conditional",
		`(*FAIL)`:       "a callout",
		`(?W:\w)`:       `the option 'W'`,
		`\p{Nope}`:      `the property "Nope"`,
		`\p{Bidi_M}`:    `the property "Bidi_M"`,
		`[[:nope:]]`:    `the POSIX class "nope"`,
		`\x80`:          "a byte that is not a character",
		`(?<=a(?=b))`:   "a lookahead within a lookbehind",
		`(?:a+?)*`:      "a lazy quantifier beside another quantifier",
		`\b+`:           "a quantifier of a position",
		`[\w-z]`:        "a range of a class begins or ends with a set",
		`[a-[b]]`:       "a range of a class begins or ends with a set",
		`[z-a]`:         "the range from 'z' to 'a' is empty",
		`[]`:            "a class is empty",
		`[a`:            "a class has no end",
		`[a[]b]`:        "a class has no end",
		`(a`:            "a group has no end",
		`a)`:            "closes no group",
		`+a`:            "nothing before the quantifier",
		`a{100001}`:     "larger than 100000",
		`a\`:            "ends with a backslash",
		`\x{110000}`:    "not the number of a character",
	} {
		if _, err := New(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", expression, err, want)
		}
	}
}

// FuzzExpressions checks that every expression that can be read runs within its steps.
func FuzzExpressions(f *testing.F) {
	for _, s := range []string{cl100k1, o200k, deepseek, `[a&&[^b]][[:alpha:]]++\X\R(?<=a|b{2,})(?i:ß)(?>x)*`, `(?x) a{1,2}+ # b`} {
		f.Add(s, "It's 12 ßß 中文\r\n")
	}
	f.Fuzz(func(t *testing.T, text, s string) {
		if s = strings.ToValidUTF8(s, "?"); len(s) > 100 {
			return
		}
		for _, d := range []dialect{oniguruma, tiktoken} {
			e, err := newExpression(text, d)
			if err != nil {
				continue
			}
			e.steps = 1 << 12
			last := 0
			spans, _ := e.Matches(nil, s)
			for _, span := range spans {
				if span.Start < last || span.End < span.Start || span.End > len(s) {
					t.Fatalf("%q on %q: %v", text, s, spans)
				}
				last = span.End
			}
		}
	})
}
