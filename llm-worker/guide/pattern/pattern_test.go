package pattern

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

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
		`(?<!a)$`:                          {[]string{"", "b", "ab"}, []string{"a", "ba"}},
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
		`(?=a)`: "lookahead", `a(?<!b)`: "lookbehind", `^a(?=b)`: "lookahead", `^(?=a)b|c`: "lookahead", `^(?:(?!a)b)`: "lookahead", `^(?=(?!a)b)c`: "lookahead", `(?<!x)a$`: "lookbehind", `^(?!a)+`: "lookahead", `^)(?=a)(`: "lookahead", `(a)\1`: "backreference", `\k<n>`: "backreference",
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

// FuzzSeveralExpressionsAndLengthsHoldTogether compares with Go's regexp.
func FuzzSeveralExpressionsAndLengthsHoldTogether(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	parts := []string{`a`, `b`, `é`, `.`, `[^a]`, `[a-é]`, `\d`, `a?`, `b*`, `(ab)+`, `(a|é)`, `\n`, `한{1,2}`, `"`, `\b`, `\B`}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		atoms := func() string {
			e := ""
			for range 1 + r.IntN(4) {
				e += parts[r.IntN(len(parts))]
			}
			return e
		}
		var conditions, wanted []Condition // wanted has those without lookaround that should be equal
		for range 1 + r.IntN(2) {
			before, after := []string{"", "^"}[r.IntN(2)], []string{"", "$"}[r.IntN(2)]
			c := Condition{Expression: before + atoms() + after, Not: r.IntN(4) == 0}
			wanted = append(wanted, c)
			if !c.Not && r.IntN(2) == 0 {
				look, not := atoms(), r.IntN(2) == 0
				switch {
				case before != "":
					c.Expression = "^" + map[bool]string{false: "(?=", true: "(?!"}[not] + look + ")" + c.Expression[1:]
					wanted = append(wanted, Condition{"^(?:" + look + ")", not})
				case after != "":
					c.Expression = strings.TrimSuffix(c.Expression, "$") + map[bool]string{false: "(?<=", true: "(?<!"}[not] + look + ")$"
					wanted = append(wanted, Condition{"(?:" + look + ")$", not})
				}
			}
			conditions = append(conditions, c)
		}
		least, most := r.IntN(3), -1
		if r.IntN(2) == 0 {
			most = least + r.IntN(5)
		}
		d, err := Compile(conditions, least, most, new(NewBudget()))
		if err != nil {
			t.Fatalf("%+v: %v", conditions, err)
		}
		matches := make([]func(string) bool, len(conditions))
		for i, c := range conditions {
			if matches[i], err = Match(c.Expression); err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
		}
		letters := []string{"a", "b", "é", "한", "1", "\n", `"`, `\`, "ab"}
		for range 200 {
			text := ""
			for range r.IntN(7) {
				text += letters[r.IntN(len(letters))]
			}
			n := utf8.RuneCountInString(text)
			want := n >= least && (most < 0 || n <= most)
			matched := want
			for _, c := range wanted {
				e := strings.ReplaceAll(c.Expression, ".", `[^\n\r\x{2028}\x{2029}]`)
				want = want && regexp.MustCompile(e).MatchString(text) != c.Not
			}
			for i, c := range conditions {
				matched = matched && matches[i](text) != c.Not
			}
			c, _ := content(t, text)
			if accepts(d, c) != want || matched != want {
				t.Fatalf("%+v with %d to %d characters accepts %q: %v, Match: %v", conditions, least, most, text, !want, matched)
			}
		}
	})
}

// FuzzExpressions compiles any expression, and finds a text of its DFA.
func FuzzExpressions(f *testing.F) {
	for _, e := range []string{`^[\w-.]+\u{1F600}?\p{L}{2}$`, `a|b(?:c)*[^\s\S]`, `\ud83d\ude00`, `(?<n>x)\cA\0`, `[[\]-a]`} {
		f.Add(e)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		d, err := Compile([]Condition{{Expression: expression}}, 0, -1, new(NewBudget()))
		if err != nil {
			return
		}
		at, text := uint16(grammar.Start), []byte{}
		if d.Need(at, 0) >= grammar.Endless {
			return
		}
		for !d.Accepts(at) {
			before := len(text)
			for b := range 256 {
				if to := d.Next(at, byte(b)); to != grammar.Dead && d.Need(to, 0) < d.Need(at, 0) {
					at, text = to, append(text, byte(b))
					break
				}
			}
			if len(text) == before {
				t.Fatalf("%q: there is no way to an end after %q", expression, text)
			}
		}
		if quoted := `"` + string(text) + `"`; !json.Valid([]byte(quoted)) || !utf8.ValidString(quoted) {
			t.Fatalf("%q accepts %q", expression, text)
		}
	})
}

func TestPropertiesAndKnownExpressions(t *testing.T) {
	const duration = `^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$`
	for expression, texts := range map[string]map[string]bool{
		duration: {"P1W": true, "P1Y2M3D": true, "P1DT2H": true, "PT0.5S": true, "PT1H2M3S": true, "P": false, "PT": false, "P1W2D": false, "P1DT": false, "1D": false},
		`^(\p{Extended_Pictographic}|\p{Emoji_Component})+$`: {"😀": true, "❤️": true, "1": true, "a": false, "": false},
		`^[\p{Emoji_Modifier}a]$`:                            {"🏽": true, "a": true, "b": false},
		`^\P{Extended_Pictographic}$`:                        {"a": true, "😀": false},
		`^\p{Script=Greek}\p{Lowercase_Letter}\p{gc=Nd}$`:    {"αa1": true, "aa1": false},
	} {
		match, err := Match(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		budget := NewBudget()
		if _, err := Compile([]Condition{{Expression: expression}}, 0, -1, &budget); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
		for text, want := range texts {
			if match(text) != want {
				t.Errorf("%s: %q is %t", expression, text, !want)
			}
		}
	}
}
