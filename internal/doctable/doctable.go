// Package doctable keeps the tables of the documentation that tests render from code.
package doctable

import (
	"os"
	"strings"
	"testing"
)

// Keep fails t unless the page has want between the lines begin and end. With rewrite, it writes
// want into the page instead. command is the command that does so.
func Keep(t *testing.T, page, begin, end, want string, rewrite bool, command string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), begin)
	got, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s has no place between %q and %q", page, begin, end)
	}
	switch {
	case got == want:
	case !rewrite:
		t.Errorf("%s does not have this table; run %s\n%s", page, command, want)
	default:
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
