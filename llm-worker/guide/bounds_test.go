package guide

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// allowed returns the tokens that a matcher allows.
func allowed(m *Matcher, room int) (ids []uint32) {
	logits := make([]float32, len(m.vocabulary.spelled))
	m.Apply(logits, room, nil)
	for id, l := range logits {
		if l == 0 {
			ids = append(ids, uint32(id))
		}
	}
	return ids
}

// need returns the number of bytes that an answer needs after a token.
func (m *Matcher) need(token uint32) int {
	s := m.state
	for _, b := range []byte(m.vocabulary.spelled[token]) {
		s = m.automaton.Step(s, b)
	}
	return s.Need()
}

func each(n int, format string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(format, "N", fmt.Sprint(i+1))
	}
	return strings.Join(all, ",")
}

// ambiguous are schemas under which an answer can be at many positions at once.
var ambiguous = map[string]string{
	"lengths":  `{"anyOf":[` + each(2500, `{"maxLength":N}`) + `]}`,
	"counts":   `{"anyOf":[` + each(2500, `{"minItems":N}`) + `]}`,
	"itself":   `{"$defs":{"t":{"anyOf":[` + each(3, `{"type":"array","items":{"$ref":"#/$defs/t"},"minItems":N}`) + `,{"type":"null"}]}},"$ref":"#/$defs/t"}`,
	"optional": `{"properties":{` + each(4000, `"N":{}`) + `}}`,
}

// Without bounds some of these schemas took minutes per token, during which no other stream got a
// token, and all memory.
func TestStatesAreBounded(t *testing.T) {
	v, tok := vocabulary(t)
	r := rand.New(rand.NewPCG(7, 8))
	for name, schema := range ambiguous {
		g, err := New(v, forms(schema))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := g.Matcher()
		for range tier.Of(4, 12) {
			may := allowed(m, 1000)
			if m.automaton.Large() || m.held > maxHeld+1<<20 {
				t.Errorf("%s: the caches hold %d bytes, and are large: %v", name, m.held, m.automaton.Large())
			}
			if n := m.state.Stacks(); n > 1<<10 {
				t.Errorf("%s: a state has %d stacks", name, n)
			}
			if err := m.Advance(may[r.IntN(len(may))]); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if m.Over() {
				break
			}
		}
		for extra := range tier.Of(1, 4) { // whatever is dropped, the answer can still be finished
			text, whole := wander(t, v, tok, forms(schema), g.root.Need()+extra, r)
			if !whole || !json.Valid([]byte(text)) || violates(t, schema, text) != "" {
				t.Errorf("%s: %q, whole %v", name, text, whole)
			}
		}
	}
}

// An answer that moves, or whose matcher clears its caches, must continue in the same way.
func TestDroppedStacksDependOnlyOnTheAnswer(t *testing.T) {
	v, _ := vocabulary(t)
	for name, schema := range ambiguous {
		g, err := New(v, forms(schema))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		here, forgetful := g.Matcher(), g.Matcher()
		var answer []uint32
		for range 5 {
			may := allowed(here, 1000)
			id := slices.MaxFunc(may, func(a, b uint32) int {
				return cmp.Or(here.need(a)-here.need(b), int(a)-int(b))
			})
			answer = append(answer, id)
			if here.Advance(id) != nil || forgetful.Advance(id) != nil {
				t.Fatal("it is allowed")
			}
			forgetful.forget()
		}
		there := g.Matcher()
		for _, id := range answer {
			if err := there.Advance(id); err != nil {
				t.Fatal(err)
			}
		}
		want, moved, forgot := allowed(here, 1000), allowed(there, 1000), allowed(forgetful, 1000)
		if !slices.Equal(want, moved) || !slices.Equal(want, forgot) {
			t.Errorf("%s: other tokens are allowed", name)
		}
	}
}

func TestManyValuesShareTheirBeginnings(t *testing.T) {
	v, tok := vocabulary(t)
	g, err := New(v, forms(`{"enum":["",`+each(5000, `"N"`)+`,null,true,"true",1,12,{"a":1}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, good := range map[string]bool{`"4711"`: true, `"5000"`: true, `""`: true, `"5001"`: false, `"true"`: true, `true`: true, `12`: true, `{"a":1}`: true, `"47x"`: false} {
		m := g.Matcher()
		ok := true
		for _, id := range tok.Encode(text, false) {
			if ok = ok && m.Advance(id) == nil; m.state.Stacks() > 256 {
				t.Fatalf("%s: %d stacks", text, m.state.Stacks())
			}
		}
		if (ok && m.Done()) != good {
			t.Errorf("%s: %v", text, ok)
		}
	}
}

// A position in a long text is one frame: many long texts do not fill the caches from the start, which
// would then be built again for each token.
func TestLongTextsDoNotFillTheCaches(t *testing.T) {
	v, _ := vocabulary(t)
	guide := &llmv1.Guide{}
	for i := range maxForms {
		guide.Forms = append(guide.Forms, &llmv1.GuideForm{Before: fmt.Sprintf("%s%03d", strings.Repeat("x", maxText-3), i), Schema: `{"const":"` + strings.Repeat("y", 1000) + `"}`})
	}
	g, err := New(v, guide)
	if err != nil {
		t.Fatal(err)
	}
	m := g.Matcher()
	if may := allowed(m, 1<<20); m.automaton.Large() || !slices.ContainsFunc(may, func(id uint32) bool { return v.spelled[id] == "x" }) {
		t.Errorf("the caches are above their bounds: %v; %d tokens are allowed", m.automaton.Large(), len(may))
	}
}

// The parts of a guide are counted over all its forms.
func TestGuidesOfManyPartsAreRefused(t *testing.T) {
	v, _ := vocabulary(t)
	numbers := `{"anyOf":[` + each(600, `{"type":"integer","minimum":N}`) + `]}`
	refs := `{"$defs":{` + each(1500, `"N":{}`) + `},"anyOf":[` + each(1500, `{"$ref":"#/$defs/N"}`) + `]}`
	dates := each(200, `"N":{"type":"string","format":"date"}`) // their DFA is made once
	if _, err := New(v, forms(`{"properties":{`+dates+`}}`)); err != nil {
		t.Errorf("dates: %v", err)
	}
	if _, err := New(v, forms(refs)); err != nil {
		t.Errorf("references: %v", err)
	}
	for name, all := range map[string][]string{"numbers": {numbers}, "schemas": slices.Repeat([]string{`{"anyOf":[` + each(5000, "true") + `]}`}, 4), "values": slices.Repeat([]string{`{"enum":[` + each(5000, "N") + `]}`}, 4)} {
		_, err := New(v, forms(all...))
		if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != param || !strings.Contains(e.Message, "too many parts") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// At a character without a token no token would be allowed, and the whole batch would fail.
func TestCharactersWithoutATokenAreRefused(t *testing.T) {
	var spelled []string
	for b := range 256 {
		if b >= ' ' && b != 0x7f || b == '\n' {
			spelled = append(spelled, string([]byte{byte(b)}))
		}
	}
	v, err := spell(spelled)
	if err != nil {
		t.Fatal(err)
	}
	for text, good := range map[string]bool{"a": true, "\x01": false, "\t": false, "\u007f": false} {
		value, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		before := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Before: text}}}
		for _, g := range []*llmv1.Guide{before, forms(`{"enum":[` + string(value) + `]}`)} {
			_, err := New(v, g)
			escaped := g != before && text < " " // a string takes no other characters
			if e := streamerr.As(err); (err == nil) != (good || escaped) || err != nil && (e.Reason != streamerr.Invalid || e.Param != param) {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}
