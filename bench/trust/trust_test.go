package main

import (
	"slices"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRowsFindEveryStream runs four rows with a few streams: every stream has its text and its
// ending. It checks no times.
func TestRowsFindEveryStream(t *testing.T) {
	tier.Full(t)
	b, err := trial.Build(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, r := range rows {
		if !slices.Contains([]string{"llm-worker is killed, another one continues", "api-service gets a second signal", "workers restart, one after another", "client's process is killed"}, r.Name) {
			continue
		}
		one := trial.New(b, 3, time.Second, r)
		all, err := one.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		counts := 0
		for _, f := range all {
			if f.Unit != lab.Count {
				continue
			}
			if counts++; !f.Within() {
				t.Errorf("%s: %s: %v", f.Row, f.What, f.Got)
			}
		}
		if counts < 4 || len(one.Readers) != 3 {
			t.Errorf("%s: %d figures of %d streams", r.Name, counts, len(one.Readers))
		}
	}
}

// TestRowsAreTheFaultsWithBounds: every row is in the catalogue of faults, and every fault of the
// catalogue with bounds has a row.
func TestRowsAreTheFaultsWithBounds(t *testing.T) {
	played := map[string]bool{}
	for _, r := range rows {
		played[r.Name] = true
		if f, ok := lab.FaultNamed(r.Name); !ok || f.Bounds == nil {
			t.Errorf("the catalogue has no bounds for the row %q", r.Name)
		}
	}
	for _, f := range lab.Faults {
		if f.Bounds != nil && !played[f.Name] {
			t.Errorf("no row measures the bounds of %q", f.Name)
		}
	}
}
