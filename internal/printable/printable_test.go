package printable_test

import (
	"testing"

	"github.com/whence-dev/whence/internal/printable"
)

func TestTextOfOthersCannotControlATerminal(t *testing.T) {
	const text = "a\x1b[2Jb\u009bc\a\r\td\u202e\u2066\n"
	if got := printable.Text(text); got != "a[2Jbc\td\n" {
		t.Errorf("Text returns %q", got)
	}
	if got := printable.Line(text); got != "a[2Jbc d " {
		t.Errorf("Line returns %q", got)
	}
	for _, joined := range []string{"👩\u200d🚀", "می\u200cخواهم"} { // joiners belong to the text
		if got := printable.Line(joined); got != joined {
			t.Errorf("Line(%q) returns %q", joined, got)
		}
	}
}
