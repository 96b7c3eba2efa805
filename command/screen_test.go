package command

import (
	"bytes"
	"testing"
)

func TestAFileGetsTextAsItIs(t *testing.T) {
	s := screenOf(&bytes.Buffer{})
	if s.Terminal() || s.Show(red, "x") != "x" {
		t.Error("a buffer is treated as a terminal")
	}
	if w, h := s.Size(); w != 80 || h != 24 {
		t.Errorf("the size is %d x %d", w, h)
	}
}

func TestTextIsFitted(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{{"abc", 5, "abc  "}, {"abcdef", 4, "abc…"}, {"äöü", 3, "äöü"}, {"x", 0, ""}} {
		if got := fit(c.text, c.width); got != c.want {
			t.Errorf("Fit(%q, %d) = %q, want %q", c.text, c.width, got, c.want)
		}
	}
}
