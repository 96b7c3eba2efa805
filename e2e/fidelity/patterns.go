package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// A patternClass is a part of the syntax of expressions, with expressions that use it. The published
// ones are those of models.
type patternClass struct {
	name        string
	expressions []string
}

const contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`

var patternClasses = []patternClass{
	{"published", []string{
		pattern.Kimi, pattern.Qwen, pattern.CL100K, pattern.O200K,
		` ?[^(\s|[.,!?…。，、।۔،])]+`, ` ?[^(\s|.,!?…。，、।۔،)]+`, `[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, `[一-龥ࠀ-一가-퟿]+`, `\p{N}+`, `\s+$`, `[0-9][0-9][0-9]`,
		`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
		`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`,
		`(?=(\d{3})+(?!\d))`, `\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))`, `(?:\r?\n|\r)(?!\r?\n)`,
		contractions + `|[^\r\n\p{L}\p{N}]?(?:[\p{L}\p{M}])+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]?|\s*[\r\n]|\s+(?!\S)|\s+`,
		`[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+`,
		`[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+`,
	}},
	{"intersections and nested classes", []string{
		`[\p{L}&&[^x]]+`, `[a-z&&[aeiou]x]+`, `[^a-z&&[^x]]+`, `[a-z&&aeiou&&i-z]`, `[[a-c][x-z]]+`, `[^[a-c]x]+`, `[\w&&[^\d\p{Han}]]+`, `[]a]+`, `[a-c-e]+`, `[\w-]+`, `[&&a]`,
	}},
	{"POSIX classes", []string{
		`[[:alpha:]]+`, `[[:^alpha:]]+`, `[[:space:][:punct:]]+`, `[[:alnum:]&&[:^upper:]]+`, `[[:word:]]+`, `[[:graph:]]+|[[:cntrl:]]`, `[[:print:]]+|[[:blank:]]`,
		`[[:xdigit:]]+|[[:digit:]]`, `[[:lower:]]+|[[:ascii:]]`,
	}},
	{"properties and escapes", []string{
		`\p{Han}+|\p{Hiragana}+|\p{Katakana}+|\p{Hangul}+`, `\p{^L}+`, `\P{^Lu}+`, `\p{Greek}+|\p{Cyrillic}+|\p{Latin}+`, `\p{Lowercase_Letter}+|\p{Titlecase_Letter}`, `\h+|\H`, `\p{Alphabetic}+`,
		`\p{Punct}+`, `[\x41-\x{7a}\u00e9]+`, `\N+|\O`, `\p{Cn}|\p{Sm}+`, `\p{Zs}+|\p{Mn}`, `\p{Extended_Pictographic}+|\p{Emoji_Modifier}`, `\p{Emoji_Presentation}+|\p{Emoji}`, `\d+|\w+`, `\W+`,
	}},
	{"line ends and grapheme clusters", []string{`\X`, `\R`, `\R\n`, `\X{2}`, `.+`, `(?m:.+)`, `^.|.$`, `\A.|.\z`, `.\Z`, `\G.`}},
	{"quantifiers", []string{
		`a++a|a?+a|a*+.`, `\s++\S`, `(?>a+)b`, `\p{L}{2}+`, `\p{L}{1,2}+b?`, `\p{L}{,2}`, `\p{L}{2}?`, `\p{L}{3,1}a`, `\p{L}+?b`, `(?:a?)*b`, `(?:a|ab)(?:c|bcd)`, `x??y|a{x`,
	}},
	{"looking around", []string{`(?<=a|bc)x`, `(?<=\s+)\S`, `(?<!\w)\d+`, `\w+(?=\W)`, `\S(?!\S)`, `\b\w`, `\B.`, `(?<=(?<=a)b)c`, `(?<!^)\n`}},
	{"any case", []string{contractions, `(?i:ss|fi|st)`, `(?i:[ß])`, `(?i:[^ß]+)`, `(?i:[k-s&&[^l]])+`, `a(?i)b|c`, `(?i:\p{Lu})+`, `(?i:[\p{Lu}])+`, `(?i:straße)`, `(?i:i̇)`, `(?x) a b # c`}},
}

// A patternRow has the results of comparing one class.
type patternRow struct {
	class              string
	expressions, texts int
	refused            int // expressions that Whence refuses
	mismatches         int
	first              []string
}

func (r *patternRow) differences() []string { return r.first }

func (r *patternRow) complain(format string, args ...any) {
	if len(r.first) < 5 {
		r.first = append(r.first, r.class+": "+fmt.Sprintf(format, args...))
	}
}

type patternQuestion struct {
	Expression string   `json:"expression"`
	Texts      []string `json:"texts"`
}

type patternAnswer struct {
	Error string
	Cuts  [][]int
}

// comparePatterns compares where the expressions of a class split texts.
func comparePatterns(ctx context.Context, packages string, c patternClass, n int, seed uint64) (*patternRow, error) {
	w := newWriter(seed)
	var questions []patternQuestion
	for _, expression := range c.expressions {
		q := patternQuestion{Expression: expression}
		for i := range n {
			text := w.shortText()
			if i%4 == 0 {
				text = strings.ToValidUTF8(w.texts(1 + w.IntN(20))[0], "\uFFFD")
			}
			q.Texts = append(q.Texts, text)
		}
		questions = append(questions, q)
	}
	var answers []patternAnswer
	if err := ask(ctx, node(patternsScript, packages), questions, &answers); err != nil {
		return nil, err
	}
	r := &patternRow{class: c.name, expressions: len(questions)}
	for i, a := range answers {
		r.compare(questions[i], a)
	}
	return r, nil
}

func (r *patternRow) compare(q patternQuestion, a patternAnswer) {
	p, err := pattern.New(q.Expression)
	if err != nil && a.Error == "" {
		r.refused++
		r.complain("%v", err)
	}
	if err != nil || a.Error != "" {
		return
	}
	for i, text := range q.Texts {
		r.texts++
		got, err := cuts(p, text)
		if err != nil || !slices.Equal(got, a.Cuts[i]) {
			r.mismatches++
			r.complain("%s on %.300q: cuts %v, %v; want %v", q.Expression, text, got, err, a.Cuts[i])
		}
	}
}

// cuts returns the ends of the pieces of text, in characters.
func cuts(p pattern.Pattern, text string) (ends []int, err error) {
	spans, err := p.Matches(nil, text)
	last, chars := 0, 0
	cut := func(at int) {
		if at > last {
			chars += utf8.RuneCountInString(text[last:at])
			ends, last = append(ends, chars), at
		}
	}
	for _, span := range spans {
		cut(span.Start)
		cut(span.End)
	}
	cut(len(text))
	return ends, err
}

// shortText returns a text of a few characters that expressions distinguish.
func (w writer) shortText() string {
	alphabet := []string{
		"a", "b", "c", "s", "t", "x", "S", "T", "X", "1", "2", "23", " ", "  ", "\n", "\r\n", "\r", ".", "'", "-", "(", "|", "中", "文", "あ", "각", "é", "e\u0301", "ß", "ẞ", "ss", "ſ", "K", "ﬁ", "fi", "İ", "i\u0307",
		"👍🏽", "👨‍👩‍👧", "🇫🇷", "\u0897", "𮯰", "\u0301", "\u2028", "\u3000", "Ⅷ", "ж", "Ω", "ǅ", "\u200b", "'ll", "'S", "abc", "xyz",
	}
	var b strings.Builder
	for range w.IntN(10) {
		b.WriteString(w.pick(alphabet))
	}
	return b.String()
}

func patternTable(rows []*patternRow) string {
	var b strings.Builder
	b.WriteString("| part of the syntax | expressions | refused | texts | mismatches |\n|---|--:|--:|--:|--:|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", r.class, r.expressions, r.refused, r.texts, r.mismatches)
	}
	return b.String() + differences(rows)
}
