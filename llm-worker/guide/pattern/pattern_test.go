package pattern

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// accepts reports whether a DFA accepts the content of a JSON string.
func accepts(d *grammar.DFA, content string) bool {
	at := uint16(grammar.Start)
	for i := range len(content) {
		if at = d.Next(at, content[i]); at == grammar.Dead {
			return false
		}
	}
	return d.Accepts(at)
}

// content returns a text as the content of a JSON string; ok is false if it needs \u.
func content(t *testing.T, text string) (quoted string, ok bool) {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		t.Fatal(err)
	}
	quoted = strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(b.String(), "\n"))
	quoted = quoted[1 : len(quoted)-1]
	return quoted, !strings.Contains(quoted, `\u`) && !strings.Contains(quoted, "\x7f")
}

func TestExpressionsMatchLikeECMA(t *testing.T) {
	for expression, texts := range map[string]struct{ good, bad []string }{
		`a`:                          {[]string{"a", "xax", "\na"}, []string{"", "b"}},
		`^a`:                         {[]string{"a", "ab"}, []string{"ba", "\na"}},
		`a$`:                         {[]string{"a", "ba"}, []string{"ab", "a\n"}},
		`^$`:                         {[]string{""}, []string{"a", "\n"}},
		`^[A-Z]{2}\d{3}$`:            {[]string{"AB123"}, []string{"AB12", "AB1234", "ab123", "AB12٣"}},
		`^.$`:                        {[]string{"a", "한", "😀", `"`, `\`, "\t"}, []string{"", "ab", "\n", "\r", "\u2028"}},
		`^\w+@\w+\.com$`:             {[]string{"a_1@b.com"}, []string{"é@b.com", "a@b_com"}},
		`^\s\S$`:                     {[]string{" a", "\u00a0a", "\ufeff한"}, []string{"a ", "a", " \u3000"}},
		`^[\s\S]$`:                   {[]string{"\n", "한"}, []string{"", "ab"}},
		`^[^\s-]$`:                   {[]string{"a"}, []string{"-", " "}},
		`^[\w-.]+$`:                  {[]string{"a-.b"}, []string{"a/b", "a b"}},
		`^[[a]$`:                     {[]string{"[", "a"}, []string{"]", "b"}},
		`^[\]\\"]+$`:                 {[]string{`]`, `\"`}, []string{"a"}},
		`^\u00e9\x41\u{1F600}$`:      {[]string{"éA😀"}, []string{"eA😀"}},
		`^\ud83d\ude00$`:             {[]string{"😀"}, []string{"😁"}},
		`^[\ud83d\ude00-\u{1f602}]$`: {[]string{"😁"}, []string{"😃"}},
		`^(?:a|b)(?<n>c)?$`:          {[]string{"a", "bc"}, []string{"c", "ab"}},
		`^\p{Lu}\P{L}$`:              {[]string{"Ж1", "A "}, []string{"ж1", "AA"}},
		`^https?:\/\/x\/$`:           {[]string{"https://x/"}, []string{"https:x"}},
		`^a|b$`:                      {[]string{"ax", "xb", "a"}, []string{"xa", "bx"}},
		`^[가-힣]+$`:                   {[]string{"한국어"}, []string{"a", "한a"}},
		`^[^a]*$`:                    {[]string{"", "한😀\n", "\u07ff\u0800\uffff\U00010000"}, []string{"a", "xa"}},
		`a{2,3}?b`:                   {[]string{"aab", "aaab", "aaaab"}, []string{"ab"}},
		`^\cJ\0?$`:                   {[]string{"\n"}, []string{"J"}},

		`^(?=.*\d)(?=.*[a-z])[a-z\d]{3,}$`: {[]string{"ab1", "1a1"}, []string{"abc", "123", "a1", "A1b"}},
		`^(?!admin$|root)\w+$`:             {[]string{"adm", "administrator", "xroot"}, []string{"admin", "root", "rooted", ""}},
		`^(?!.*--)[a-z-]+(?<!-)$`:          {[]string{"a", "a-b", "-a"}, []string{"a--b", "a-", "", "-"}},
		`^[a-z]+(?<=x|y)(?<!xy|q(?:x))$`:   {[]string{"x", "ay", "yx"}, []string{"a", "axy", "xy", "qx"}},
		`^(?![\])(|a])`:                    {[]string{"", "b"}, []string{"ab", ")", "]", "("}},
		`\bcat\b`:                          {[]string{"cat", "a cat", "cat\n", "(cat)", "écat"}, []string{"cats", "bobcat", "", "cat_"}},
		`^\w+\b.\B`:                        {[]string{"a-", "a--", "a- "}, []string{"a", "a-b", "-"}},
		`^\b$`:                             {nil, []string{"", "a"}},
		`^\B$|^\b\w`:                       {[]string{"", "ab"}, []string{"-"}},
		`^(?=.*\bred\b)[a-z ]+$`:           {[]string{"red", "a red x"}, []string{"reds", "red!"}},
		`^(?=a)`:                           {[]string{"a", "ab"}, []string{"", "ba"}},
		`^a(?=b)`:                          {[]string{"ab", "abc"}, []string{"a", "ac", "b"}},
		`^(?:(?!--)[a-z-])+$`:              {[]string{"a-b", "-"}, []string{"a--b", "--", ""}},
		`\d(?=(?:\d{3})+$)`:                {[]string{"1000", "x1000"}, []string{"100", "1000x"}},
		`^(?=a)b|c`:                        {[]string{"c", "xc"}, []string{"b", "a"}},
		`^(?:a(?!b)|c)*$`:                  {[]string{"", "aac", "ca"}, []string{"ab", "cab"}},
		`(?<=\$)\d+`:                       {[]string{"$5", "a$12"}, []string{"5", "$a", "$"}},
		`(?<![a-z])cat(?![a-z])`:           {[]string{"cat", "a cat.", "1cat2"}, []string{"cats", "bobcat"}},
		`^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$`: {
			[]string{"P1W", "P1Y2M3D", "PT5M", "P1DT1.5S"}, []string{"P", "PT", "P1YT", "P1W1D", "1D"},
		},
		`a(?=\b)`:       {[]string{"a", "xa-"}, []string{"ab", "b"}},
		`(?=^a)a`:       {[]string{"ab"}, []string{"ba"}},
		`(?<=^a)b(?=$)`: {[]string{"ab"}, []string{"aab", "abc"}},
		`^(?=.*a$|b)`:   {[]string{"xa", "bx"}, []string{"ax", ""}},
		`(?<!a)$`:       {[]string{"", "b", "ab"}, []string{"a", "ba"}},
	} {
		d, err := Compile([]Condition{{Expression: expression}}, 0, -1, new(NewBudget()))
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		for i, list := range [][]string{texts.good, texts.bad} {
			for _, text := range list {
				c, ok := content(t, text)
				if !ok {
					t.Fatalf("%q cannot be written", text)
				}
				if accepts(d, c) != (i == 0) {
					t.Errorf("%s accepts %q: %v", expression, text, i != 0)
				}
			}
		}
	}
}

func TestTextsOutsideOfJSON(t *testing.T) {
	d, err := CompileText(`\d+|"[^\\]*"|한\n`, new(NewBudget()))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"12": true, `""`: true, "\"a\tb\"": true, "한\n": true, "": false, "1-": false, `"\"`: false, "\"\x01\"": false, `한\n`: false} {
		if accepts(d, text) != want {
			t.Errorf("%q is accepted: %t", text, !want)
		}
	}
}

func TestUnsupportedExpressionsAreRefusedByName(t *testing.T) {
	for expression, says := range map[string]string{
		`^(?=(?!a)b)c`: "within another", `(?<!a(?=b))`: "within another", `^(?!a)+`: "repeats a lookahead", `(?<=a){2}`: "repeats", `(?=a`: "has no end", `^)(?=a)(`: "not a regular expression", `(a)\1`: "backreference", `\k<n>`: "backreference",
		`(`: "not a regular expression", `a**`: "not a regular expression", `[b-a]`: "not a regular expression", `(?i)a`: "unknown kind", `[]`: "empty character class",
		`[a`: "class without an end", `\`: "ends with a backslash", `\q`: "unknown escape", `\u12`: "number of a character", `\ud800`: "number of a character",
		`\p{Nothing}`: "not a regular expression", `\pL`: "in braces", `(?<a`: "name without an end", `^(a|b)*a(a|b){14}$`: "too complex", `^.{4000}a.{4000}$`: "",
		strings.Repeat("a", maxExpression+1): "it can have",
	} {
		_, err := Compile([]Condition{{Expression: expression}}, 0, -1, new(NewBudget()))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40s: %v, want %q", expression, err, says)
		}
	}
	if _, err := Compile([]Condition{{Expression: `^a*$`}}, 0, 1e9, new(NewBudget())); err == nil {
		t.Error("a DFA of a billion places is made")
	}
}

// FuzzSeveralExpressionsAndLengthsHoldTogether compares with an engine that backtracks. Other letters than
// ASCII's belong to words there, so there are none.
func FuzzSeveralExpressionsAndLengthsHoldTogether(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		var conditions []Condition
		for range 1 + r.IntN(2) {
			e := []string{"", "^"}[r.IntN(2)] + drawExpression(r, true) + []string{"", "$"}[r.IntN(2)]
			conditions = append(conditions, Condition{Expression: e, Not: r.IntN(4) == 0})
		}
		least, most := r.IntN(3), -1
		if r.IntN(2) == 0 {
			most = least + r.IntN(5)
		}
		d, err := Compile(conditions, least, most, new(NewBudget()))
		if errors.Is(err, errLarge) {
			t.Skip(err)
		} else if err != nil {
			t.Fatalf("%+v: %v", conditions, err)
		}
		matches, oracles := make([]func(string) bool, len(conditions)), make([]*regexp2.Regexp, len(conditions))
		for i, c := range conditions {
			if matches[i], err = Match(c.Expression, new(NewBudget())); errors.Is(err, errLarge) {
				t.Skip(err)
			} else if err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			oracles[i] = regexp2.MustCompile(c.Expression, regexp2.ECMAScript)
		}
		letters := []string{"a", "b", "–", "→", "1", "\n", `"`, `\`, "ab"}
		for range 200 {
			text := ""
			for range r.IntN(7) {
				text += letters[r.IntN(len(letters))]
			}
			n := utf8.RuneCountInString(text)
			want := n >= least && (most < 0 || n <= most)
			for i, c := range conditions {
				matched, err := oracles[i].MatchString(text)
				if err != nil {
					t.Fatal(err)
				}
				if matches[i](text) != matched {
					t.Fatalf("%+v matches %q: %v, want %v", c, text, !matched, matched)
				}
				want = want && matched != c.Not
			}
			quoted, ok := content(t, text)
			if ok && accepts(d, quoted) != want {
				t.Fatalf("%+v, %d to %d characters, accepts %q: %v, want %v", conditions, least, most, text, !want, want)
			}
		}
	})
}

// drawExpression draws an expression. Outside of lookarounds it has some.
func drawExpression(r *rand.Rand, outside bool) string {
	parts := []string{`a`, `b`, `–`, `.`, `[^a]`, `[a-–]`, `\d`, `a?`, `b*`, `(ab)+`, `(a|–)`, `\n`, `→{1,2}`, `"`, `\b`, `\B`, `[^b]*`, `$`, `^`}
	e := ""
	for range 1 + r.IntN(4) {
		kind := r.IntN(9)
		switch {
		case kind == 0 && outside:
			e += []string{"(?=", "(?!", "(?<=", "(?<!"}[r.IntN(4)] + drawExpression(r, false) + ")"
		case kind == 1 && outside:
			e += "(?:" + drawExpression(r, true) + "|" + drawExpression(r, true) + ")" + []string{"", "*", "?", "{2}"}[r.IntN(4)]
		default:
			e += parts[r.IntN(len(parts))]
		}
	}
	return e
}
