package guide_test

import (
	"fmt"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/guide"
)

func TestGrammarsAreThoseOfGBNF(t *testing.T) {
	var kept guide.Grammars
	lone := func(schema string) *llmv1.Guide { return &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: schema}}} }
	for range 2 {
		for i := range 300 { // more than are kept
			g := lone(fmt.Sprintf(`{"enum":["%d"]}`, i))
			want, err := guide.GBNF(g)
			if got, gotErr := kept.GBNF(g); err != nil || gotErr != nil || got != want {
				t.Fatalf("%d: %q, %v; want %q, %v", i, got, gotErr, want, err)
			}
		}
	}
	if _, err := kept.GBNF(lone(`{"contains":{}}`)); err == nil {
		t.Error("a schema that cannot be enforced has a grammar")
	}
}

// TestGrammarIsWrittenOnce: to write it again takes many allocations, to find it few.
func TestGrammarIsWrittenOnce(t *testing.T) {
	var kept guide.Grammars
	g := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"type":"object","properties":{"a":{"type":"array","items":{"type":"number"}}},"required":["a"]}`}}}
	find := testing.AllocsPerRun(20, func() { _, _ = kept.GBNF(g) })
	write := testing.AllocsPerRun(20, func() { _, _ = guide.GBNF(g) })
	if find*5 > write {
		t.Errorf("%.0f allocations to find a grammar, %.0f to write it", find, write)
	}
}
