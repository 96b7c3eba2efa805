package guide

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/llm-worker/guide/grammar"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A notation is a GBNF grammar, read as llama.cpp does.
type notation map[string][][]element

// An element is a part of an alternative: a rule, or ranges of characters, several times.
type element struct {
	rule      string
	ranges    [][2]rune
	least, to int // to is negative if there is no maximum
}

// readGBNF reads the part of the notation that guides write: rules of one line, without groups.
func readGBNF(t *testing.T, text string) notation {
	t.Helper()
	all := notation{}
	for line := range strings.Lines(text) {
		name, body, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ::= ")
		if !ok || all[name] != nil {
			t.Fatalf("%q is no rule, or %q has two", line, name)
		}
		alternatives := [][]element{nil}
		for at := 0; at < len(body); {
			var read []element
			var n int
			switch c := body[at]; c {
			case ' ':
				n = 1
			case '|':
				alternatives, n = append(alternatives, nil), 1
			case '"', '[':
				read, n = characters(t, body[at:])
			default:
				if n = strings.IndexAny(body[at:]+" ", " {*"); n == 0 {
					t.Fatalf("%q at %d", body, at)
				}
				read = []element{{rule: body[at : at+n], least: 1, to: 1}}
			}
			at += n
			if n, least, to := times(t, body[at:]); n > 0 {
				read[len(read)-1].least, read[len(read)-1].to = least, to
				at += n
			}
			last := &alternatives[len(alternatives)-1]
			*last = append(*last, read...)
		}
		all[name] = alternatives
	}
	return all
}

// times reads an operator of repetition.
func times(t *testing.T, text string) (n, least, to int) {
	t.Helper()
	switch {
	case strings.HasPrefix(text, "*"):
		return 1, 0, -1
	case !strings.HasPrefix(text, "{"):
		return 0, 0, 0
	}
	inside, _, _ := strings.Cut(text[1:], "}")
	low, high, _ := strings.Cut(inside, ",")
	least, err := strconv.Atoi(low)
	if err != nil {
		t.Fatal(err)
	}
	if to = -1; high != "" {
		if to, err = strconv.Atoi(high); err != nil {
			t.Fatal(err)
		}
	}
	return len(inside) + 2, least, to
}

// characters reads a literal or a class.
func characters(t *testing.T, text string) (all []element, n int) {
	t.Helper()
	class := text[0] == '['
	var ranges [][2]rune
	between := false
	end := map[bool]byte{false: '"', true: ']'}[class]
	for n = 1; text[n] != end; {
		r := rune(text[n])
		n++
		if r == '-' && class {
			between = true
			continue
		}
		if r == '\\' {
			digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[n]]
			code, err := strconv.ParseUint(text[n+1:n+1+digits], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			r = rune(code)
			n += 1 + digits
		}
		if between {
			ranges[len(ranges)-1][1], between = r, false
			continue
		}
		ranges = append(ranges, [2]rune{r, r})
	}
	if class {
		return []element{{ranges: ranges, least: 1, to: 1}}, n + 1
	}
	for _, r := range ranges {
		all = append(all, element{ranges: [][2]rune{r}, least: 1, to: 1})
	}
	return all, n + 1
}

// A reading finds where the texts of rules end.
type reading struct {
	notation
	text []rune
	ends map[string]map[int]map[int]bool // by rule and beginning
}

func (n notation) has(text string) bool {
	r := reading{n, []rune(text), map[string]map[int]map[int]bool{}}
	return r.rule("root", 0)[len(r.text)]
}

func (r *reading) rule(name string, from int) map[int]bool {
	if known := r.ends[name][from]; known != nil {
		return known
	}
	if r.ends[name] == nil {
		r.ends[name] = map[int]map[int]bool{}
	}
	ends := map[int]bool{}
	r.ends[name][from] = ends
	for _, alternative := range r.notation[name] {
		at := map[int]bool{from: true}
		for i := range alternative {
			at = r.element(&alternative[i], at)
		}
		for end := range at {
			ends[end] = true
		}
	}
	return ends
}

func (r *reading) element(e *element, from map[int]bool) map[int]bool {
	all := map[int]bool{}
	for n := 0; len(from) > 0 && (e.to < 0 || n <= e.to) && n <= len(r.text)+1; n++ {
		next := map[int]bool{}
		for at := range from {
			if n >= e.least {
				all[at] = true
			}
			if e.rule != "" {
				for end := range r.rule(e.rule, at) {
					next[end] = true
				}
				continue
			}
			for _, c := range e.ranges {
				if at < len(r.text) && r.text[at] >= c[0] && r.text[at] <= c[1] {
					next[at+1] = true
				}
			}
		}
		from = next
	}
	return all
}

// accepts reports whether a text is an answer of a guide.
func (g *Guide) accepts(text string) bool {
	a, s := grammar.New(g.root)
	for i := range len(text) {
		if s = a.Step(s, text[i]); s == nil {
			return false
		}
	}
	return s.Done()
}

// FuzzGBNFHasTheSameAnswers compares the grammar for llama.cpp with the guide's automaton, for valid
// answers and for answers with one change.
func FuzzGBNFHasTheSameAnswers(f *testing.F) {
	v, _ := vocabulary(f)
	for seed := range uint64(tier.Of(25, 100)) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		one, other := draw(r, 1), draw(r, 1)
		g := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Before: "<tool_call>\n{\"한\": ", Schema: one.schema, After: "}\n</tool_call>"}, {Before: `"é\`, Schema: other.schema}, {Before: "함"},
			{Before: "f", Parts: []*llmv1.GuidePart{{Before: "<", After: "\n>"}, {Texts: []string{"é", "함께"}, After: ".", Optional: true}}}}}
		free := ""
		if seed%2 == 0 {
			g.FreeUntil, free = "</생각>", "x</생</생😀</생각>"
		}
		if seed%4 == 0 {
			g.FreeFrom, g.FreeGap, free = "<생각>", "\n", "<생각>"+free+"\n"
		}
		compiled, err := New(v, g)
		if err != nil {
			t.Fatal(err)
		}
		gbnf, err := GBNF(g)
		if err != nil {
			t.Fatal(err)
		}
		n := readGBNF(t, gbnf)
		for range 4 {
			text := free + []string{g.Forms[0].Before + one.value(r) + g.Forms[0].After, g.Forms[1].Before + other.value(r), "함", "f<\n\né\n>", "f<\n>함께."}[r.IntN(5)]
			if !n.has(text) || !compiled.accepts(text) {
				t.Fatalf("%s: %q is not an answer of\n%s", one.schema, text, gbnf)
			}
			runes := []rune(text)
			at := r.IntN(len(runes))
			changed := []rune{'a', '"', '1', ' ', '\\', '한', 'é', '}', ','}[r.IntN(9)]
			switch r.IntN(3) {
			case 0:
				runes[at] = changed
			case 1:
				runes = append(runes[:at], runes[at+1:]...)
			default:
				runes = append(runes[:at+1], runes[at:]...)
				runes[at] = changed
			}
			if text = string(runes); n.has(text) != compiled.accepts(text) {
				t.Fatalf("%s: %q: %v, %v:\n%s", one.schema, text, n.has(text), compiled.accepts(text), gbnf)
			}
		}
	})
}

func TestGBNFIsOfAllSchemas(t *testing.T) {
	v, tok := vocabulary(t)
	r := rand.New(rand.NewPCG(7, 8))
	for i, s := range schemas {
		if i%tier.Of(4, 1) > 0 {
			continue
		}
		gbnf, err := GBNF(forms(s))
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		n := readGBNF(t, gbnf)
		for range 3 {
			if text, whole := wander(t, v, tok, forms(s), 100, r); whole && !n.has(text) {
				t.Errorf("%s: %q is not an answer of\n%.1000s", s, text, gbnf)
			}
		}
	}
}

func TestGBNFIsBounded(t *testing.T) {
	if _, err := GBNF(forms("false")); err == nil || streamerr.As(err).Param != param || !strings.Contains(err.Error(), "no value") {
		t.Error(err)
	}
	// llama.cpp counts to 2000, so these bounds are looser.
	for schema, operator := range map[string]string{
		`{"type":"string","maxLength":2000}`: "{0,2000}", `{"type":"string","maxLength":2001}`: "*", `{"type":"string","minLength":7,"maxLength":9999}`: "{7,}", `{"type":"array","minItems":3000}`: "{2000,}",
	} {
		gbnf, err := GBNF(forms(schema))
		if err != nil || !strings.Contains(gbnf, operator+" ") && !strings.Contains(gbnf, operator+"\n") || operator != "{0,2000}" && strings.Contains(gbnf, "{0,2000}") {
			t.Errorf("%s: %v, and no %s in %.2000s", schema, err, operator, gbnf)
		}
	}
	large := forms(slices.Repeat([]string{"{}"}, 100)...)
	for _, form := range large.GetForms() {
		form.Before = strings.Repeat(`"`, maxText)
	}
	if _, err := GBNF(large); err == nil || streamerr.As(err).Param != param || !strings.Contains(err.Error(), "too large") {
		t.Error(err)
	}
}
