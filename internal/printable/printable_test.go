package printable_test

import (
	"testing"

	"github.com/whence-dev/whence/internal/printable"
)

func TestTextOfOthersCannotControlATerminal(t *testing.T) {
	const text = "a\x1b[2Jb\u009bc\a\r\td\n"
	if got := printable.Text(text); got != "a[2Jbc\td\n" {
		t.Errorf("Text returns %q", got)
	}
	if got := printable.Line(text); got != "a[2Jbc d " {
		t.Errorf("Line returns %q", got)
	}
}
