package main

import (
	"slices"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/trust/stand"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/tier"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRowsFindEveryStream runs four rows with a few streams: every stream has its text and its
// ending. It checks no times.
func TestRowsFindEveryStream(t *testing.T) {
	tier.Full(t)
	b, err := stand.Build(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, r := range rows {
		if !slices.Contains([]string{"worker killed, another is there", "api-service gets a second signal", "workers restart, one after another", "the processes of clients are killed"}, r.Name) {
			continue
		}
		one := trial.New(b, 3, time.Second, r)
		all, err := one.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		counts := 0
		for _, f := range all {
			if f.Unit != report.Count {
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
