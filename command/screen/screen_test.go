package screen_test

import (
	"bytes"
	"testing"

	"github.com/whence-dev/whence/command/screen"
)

func TestAFileGetsTextAsItIs(t *testing.T) {
	s := screen.Of(&bytes.Buffer{})
	if s.Terminal() || s.Show(screen.Red, "x") != "x" {
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
		if got := screen.Fit(c.text, c.width); got != c.want {
			t.Errorf("Fit(%q, %d) = %q, want %q", c.text, c.width, got, c.want)
		}
	}
}
