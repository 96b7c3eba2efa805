package reasoning

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// split processes an answer in pieces of at most step bytes.
func split(opened bool, answer string, step func() int) (thought, text string) {
	s := New(opened)
	var a, b strings.Builder
	for answer != "" {
		n := min(step(), len(answer))
		x, y := s.Next(answer[:n])
		a.WriteString(x)
		b.WriteString(y)
		answer = answer[n:]
	}
	x, y := s.End()
	return a.String() + x, b.String() + y
}

var answers = []struct {
	opened                bool
	answer, thought, text string
}{
	{false, "hello", "", "hello"},
	{false, "", "", ""},
	{false, " \n", "", " \n"},
	{false, "<think>\nhm\n\nso\n</think>\n\nyes\n", "hm\n\nso", "yes\n"},
	{false, "\n<think>hm</think>yes", "hm", "yes"},
	{false, "<think>\n\n</think>\n\nyes", "", "yes"},
	{false, "I write <think>", "", "I write <think>"},
	{false, "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"},
	{false, "<thin", "", "<thin"},
	{false, "<think>cut short", "cut short", ""},
	{false, "</think>a", "", "</think>a"},
	{true, "hm\n</think>\n\nyes", "hm", "yes"},
	{true, "a < b </thin king </think>c", "a < b </thin king", "c"},
	{true, "cut </th", "cut </th", ""},
	{true, "</think>yes", "", "yes"},
	{true, "hm" + strings.Repeat("\n", maxSpace+2) + "</think>yes", "hm\n\n", "yes"},
}

func TestReasoningIsSeparatedForAnyPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range answers {
		for i := range 50 {
			step := func() int { return 1 + r.IntN(1+i%12) }
			if thought, text := split(c.opened, c.answer, step); thought != c.thought || text != c.text {
				t.Fatalf("%q (opened %v): thought %q, text %q; want %q, %q", c.answer, c.opened, thought, text, c.thought, c.text)
			}
		}
	}
}

func TestEndlessWhiteSpaceIsNotHeldBack(t *testing.T) {
	s := New(true)
	s.Next("hm")
	held := 0
	for range 10 * maxSpace {
		thought, _ := s.Next("\n")
		if held += 1 - len(thought); held > maxSpace {
			t.Fatalf("%d bytes are held back", held)
		}
	}
}

func FuzzPiecesGiveTheSameResult(f *testing.F) {
	for _, c := range answers {
		f.Add(c.opened, c.answer, uint64(1))
	}
	f.Fuzz(func(t *testing.T, opened bool, answer string, seed uint64) {
		wantThought, wantText := split(opened, answer, func() int { return len(answer) })
		r := rand.New(rand.NewPCG(seed, 1))
		thought, text := split(opened, answer, func() int { return 1 + r.IntN(9) })
		if thought != wantThought || text != wantText {
			t.Errorf("%q: thought %q, text %q; whole %q, %q", answer, thought, text, wantThought, wantText)
		}
	})
}
