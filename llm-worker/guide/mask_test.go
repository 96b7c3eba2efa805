package guide

import (
	"math/rand/v2"
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// TestMasksAreExact compares masks with the result of trying every token.
func TestMasksAreExact(t *testing.T) {
	v, _ := vocabulary(t)
	r := rand.New(rand.NewPCG(11, 12))
	guides := []*llmv1.Guide{{FreeUntil: "<end>", Forms: forms(person).GetForms()}, {FreeUntil: "aab", Forms: []*llmv1.GuideForm{{Before: "\""}}}}
	for _, s := range schemas {
		guides = append(guides, forms(s))
	}
	for _, bounded := range []string{`{"maxLength":3}`, `{"minLength":5,"maxLength":5}`, `{"anyOf":[{"maxLength":2},{"minLength":4},{"const":"abc"}]}`} {
		guides = append(guides, forms(bounded))
	}
	for _, guide := range guides {
		g, err := New(v, guide)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			m := g.Matcher()
			for room := 40; room > 0 && !m.Over(); room-- {
				limit := 1 << 30
				if m.state.Need() <= room {
					limit = room - 1
				}
				var want []uint32
				for id, text := range v.spelled {
					at := m.state
					for i := 0; i < len(text) && at != nil; i++ {
						at = m.automaton.Step(at, text[i])
					}
					if text != "" && at != nil && at.Need() <= limit {
						want = append(want, uint32(id))
					}
				}
				got := allowed(m, room)
				if !slices.Equal(got, want) {
					t.Fatalf("%v with room for %d: %d tokens are allowed, not %d", guide, room, len(got), len(want))
				}
				if len(got) == 0 {
					break // the answer may only end
				}
				if err := m.Advance(got[r.IntN(len(got))]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
