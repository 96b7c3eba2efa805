package reasoning

import "testing"

func TestFindHoldsBackPossibleMarkers(t *testing.T) {
	for _, c := range []struct {
		text      string
		last      bool
		at, which int
	}{
		{"plain", false, 5, -1},
		{"", false, 0, -1},
		{"a<tool", false, 1, -1},
		{"a<tool", true, 6, -1},
		{"a<tool>b", false, 1, 0},
		{"a<toolbox>b", false, 1, 1},
		{"a<end><tool>", false, 1, 2},
		{"a<tool><en", false, 1, 0},
		{"<<tool>", false, 1, 0},
		{"a<end>", false, 1, -1},
		{"a<end>", true, 1, 2},
		{"a<end>s", false, 1, 3},
	} {
		if at, which := FindMarker(c.text, c.last, "<tool>", "<toolbox>", "<end>", "<end>s"); at != c.at || which != c.which {
			t.Errorf("%q: %d, %d", c.text, at, which)
		}
	}
}

func FuzzFindAgreesWithTheWholeText(f *testing.F) {
	f.Add("a<tool>b<toolbox", uint8(3))
	f.Fuzz(func(t *testing.T, text string, cut uint8) {
		markers := []string{"<tool>", "<toolbox>", "<end>", "<end>s"}
		want, kind := FindMarker(text, true, markers...)
		done := 0
		for n := min(int(cut), len(text)); ; n = len(text) {
			held := text[done:n]
			at, which := FindMarker(held, n == len(text), markers...)
			if which >= 0 {
				if done+at != want || which != kind {
					t.Fatalf("%q in pieces: %d %d, want %d %d", text, done+at, which, want, kind)
				}
				return
			}
			if done += at; n == len(text) {
				break
			}
		}
		if kind >= 0 || done != len(text) {
			t.Fatalf("%q in pieces: none, want %d %d", text, want, kind)
		}
	})
}
