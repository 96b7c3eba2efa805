package guide

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// accepts reports whether s matches all of text, and whether it matches a prefix of it.
func accepts(s *grammar.Symbol, text string) (all, prefix bool) {
	a, at := grammar.New(grammar.Measure(s))
	for i := range len(text) {
		if at = a.Step(at, text[i]); at == nil {
			return false, prefix
		}
		prefix = prefix || at.Done() && i < len(text)-1
	}
	return at.Done(), prefix
}

func TestFreeTextEndsAtTheFirstOccurrenceOfItsEnd(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	draw := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "a\xec"[r.IntN(2)] // the second begins a character
		}
		return string(b)
	}
	matched := 0
	for range 3000 {
		end, text := draw(1+r.IntN(5)), draw(r.IntN(12))
		want := strings.Index(text, end) == len(text)-len(end) && len(text) >= len(end)
		got, prefix := accepts(grammar.Run(freeText(end), 0, -1), text)
		if got != want || got && prefix {
			t.Fatalf("free text until %q: %q matches: %v, a prefix of it: %v", end, text, got, prefix)
		}
		if got {
			matched++
		}
	}
	if matched < 100 {
		t.Fatal("too few texts matched to show anything:", matched)
	}
}

func TestReasoningMayPrecedeAForm(t *testing.T) {
	v, tok := vocabulary(t)
	r := rand.New(rand.NewPCG(7, 8))
	g := &llmv1.Guide{FreeUntil: "</think>", Forms: []*llmv1.GuideForm{{Before: "\n\n", Schema: `{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"],"additionalProperties":false}`}}}
	form := regexp.MustCompile(`(?s)^.*?</think>\n\n(\{.*\})$`)
	free := 0
	for range 40 {
		// Whatever stands in front, the answer is finished in its room.
		text, whole := wander(t, v, tok, g, 30+r.IntN(40), r)
		parts := form.FindStringSubmatch(text)
		if !whole || parts == nil || !json.Valid([]byte(parts[1])) {
			t.Fatalf("%q, whole %v", text, whole)
		}
		free += len(text) - len(parts[1])
	}
	if free < 1000 {
		t.Error("hardly anything stood in front of the forms:", free, "bytes")
	}
	if _, err := New(v, &llmv1.Guide{FreeUntil: strings.Repeat("x", maxFree+1), Forms: g.GetForms()}); err == nil {
		t.Error("an end of free text that is too long is accepted")
	}
}

func TestReasoningMayBeLeftOut(t *testing.T) {
	v, tok := vocabulary(t)
	r := rand.New(rand.NewPCG(9, 8))
	g := &llmv1.Guide{FreeFrom: "{think}", FreeUntil: "{/think}", FreeGap: "\n", Forms: []*llmv1.GuideForm{{Schema: `{"type":"boolean"}`}, {Before: "{", Schema: "{\"type\":\"null\"}", After: "}"}}}
	form := regexp.MustCompile(`(?s)^(\{think\}.*?\{/think\}\n)?(true|false|\{null\})$`)
	with, without := 0, 0
	for range 60 {
		text, whole := wander(t, v, tok, g, 40, r)
		parts := form.FindStringSubmatch(text)
		switch {
		case !whole || parts == nil:
			t.Fatalf("%q, whole %v", text, whole)
		case parts[1] == "":
			without++
		default:
			with++
		}
	}
	if with == 0 || without == 0 {
		t.Errorf("%d answers have reasoning, and %d have none", with, without)
	}
}

func TestFormsHaveParts(t *testing.T) {
	v, tok := vocabulary(t)
	r := rand.New(rand.NewPCG(9, 9))
	g := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Before: "<f>\n", After: "</f>", Parts: []*llmv1.GuidePart{
		{Before: "<b>", Schema: `{"type":"integer","minimum":10,"maximum":99}`, After: "</b>\n", Optional: true},
		{Before: "<c>", Texts: []string{"yes", "no", "yes"}, After: "</c>\n", Optional: true},
		{Before: "<a>", After: "</a>\n"},
	}}}}
	form := regexp.MustCompile(`(?s)^<f>\n(<b>[1-9][0-9]</b>\n)?(<c>(?:yes|no)</c>\n)?<a>.*?</a>\n</f>$`)
	seen := map[string]int{}
	for range 60 {
		text, whole := wander(t, v, tok, g, 60, r)
		parts := form.FindStringSubmatch(text)
		if !whole || parts == nil {
			t.Fatalf("%q, whole %v", text, whole)
		}
		for i, part := range parts[1:] {
			if part != "" {
				seen[string(rune('b'+i))]++
			}
		}
	}
	if n := len(seen); n != 2 || seen["b"] == 60 || seen["c"] == 60 {
		t.Errorf("optional parts are never there, or never left out: %v", seen)
	}
	for name, bad := range map[string]*llmv1.GuidePart{
		"no end": {Before: "<a>"}, "a long end": {After: strings.Repeat("x", maxFree+1)}, "a long text": {Before: strings.Repeat("x", maxText+1), After: "x"}, "a bad schema": {Schema: "[", After: "x"},
	} {
		if _, err := New(v, &llmv1.Guide{Forms: []*llmv1.GuideForm{{Parts: []*llmv1.GuidePart{bad}}}}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	many := slices.Repeat([]*llmv1.GuidePart{{After: "x"}}, maxParts+1)
	if _, err := New(v, &llmv1.Guide{Forms: []*llmv1.GuideForm{{Parts: many}}}); err == nil {
		t.Error("too many parts are accepted")
	}
}
