package schedule

import (
	"testing"

	"github.com/whence-dev/whence/lab"
)

// TestFaultsAreThoseOfTheCatalogue: each row that a kind plays is in the catalogue, and some kinds play
// some.
func TestFaultsAreThoseOfTheCatalogue(t *testing.T) {
	rows := 0
	for k := range kinds {
		for _, name := range k.Rows() {
			if _, ok := lab.FaultNamed(name); !ok {
				t.Errorf("%s plays %q, which is not in the catalogue", k, name)
			}
			rows++
		}
	}
	if rows == 0 {
		t.Error("no kind plays a fault of the catalogue")
	}
}
