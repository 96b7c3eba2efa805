package grammar

import "testing"

func TestRestartKeepsThePosition(t *testing.T) {
	pair := Sequence(Byte('"'), Run(Characters, 1, 2), Byte('"'))
	a, s := New(Measure(Sequence(Byte('['), Repeat(2, 2, pair), Byte(']'))))
	for _, b := range []byte("[\"\xe2\x82\xac\\n\"\"x\"]") {
		if s = a.Step(s, b); s == nil {
			t.Fatalf("%q is not allowed", b)
		}
		fresh, same := a.Restart(s)
		for c := range 256 {
			want, got := a.Step(s, byte(c)), fresh.Step(same, byte(c))
			if (want == nil) != (got == nil) || want != nil && (want.Need() != got.Need() || want.Done() != got.Done() || want.Stacks() != got.Stacks()) {
				t.Fatalf("after %q, %q leads elsewhere", b, byte(c))
			}
		}
		a, s = fresh, same
	}
	if !s.Done() || s.Stacks() != 0 {
		t.Error("the text is not complete")
	}
}

func TestNeedOfCountedCharacters(t *testing.T) {
	a, s := New(Measure(Sequence(Run(Characters, 3, 4), Byte('"'))))
	for _, step := range []struct {
		b    byte
		need int
	}{{'a', 3}, {0xed, 4}, {0x95, 3}, {0x9c, 2}, {'\\', 2}, {'n', 1}, {'z', 1}, {'"', 0}} {
		if s = a.Step(s, step.b); s == nil || s.Need() != step.need {
			t.Fatalf("after %q: %+v, want need %d", step.b, s, step.need)
		}
	}
}
