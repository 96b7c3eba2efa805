package tinyllama

import (
	"testing"
	"time"
)

// TestPromptsYieldToAnswers: without a running answer, a prompt is read in large chunks; beside an answer,
// chunks are bounded.
func TestPromptsYieldToAnswers(t *testing.T) {
	m := New(tinyWeights(t), Options{NoPrefixCache: true})
	m.pace = stepPace{Token: 100 * time.Microsecond, Step: time.Millisecond}
	read := func(ids ...uint64) int {
		t.Helper()
		before := m.sequences[1].read
		m.pace = stepPace{Token: 100 * time.Microsecond, Step: time.Millisecond} // whatever this machine has taken
		mustStep(t, m, ids, nil)
		return m.sequences[1].read - before
	}
	if err := m.Join(1, endless(900, 10)); err != nil {
		t.Fatal(err)
	}
	if n := read(1); n != 512 {
		t.Errorf("%d tokens were read alone", n)
	}
	if err := m.Join(2, endless(1, 10)); err != nil {
		t.Fatal(err)
	}
	mustStep(t, m, []uint64{2}, nil)
	if n := read(1, 2); n != 40 {
		t.Errorf("%d tokens were read beside an answer", n)
	}
}
