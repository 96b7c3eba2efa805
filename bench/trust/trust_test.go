package main

import (
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRowsFindEveryStream plays two rows with a few streams: every stream is found with its text and its ending. It
// looks at no time.
func TestRowsFindEveryStream(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the services")
	}
	b, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	for _, r := range rows {
		if r.name != "worker killed, another is there" && r.name != "api-service gets a second signal" {
			continue
		}
		s := &stand{builds: b, streams: 3}
		all, err := s.play(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		counts := 0
		for _, f := range all {
			if f.unit != count {
				continue
			}
			if counts++; f.got != 0 {
				t.Errorf("%s: %s: %v", f.row, f.what, f.got)
			}
		}
		if counts < 4 || len(s.readers) != 3 {
			t.Errorf("%s: %d figures of %d streams", r.name, counts, len(s.readers))
		}
	}
}

// TestMissedBoundsAreTold: a figure over its bound is marked, wherever it is shown.
func TestMissedBoundsAreTold(t *testing.T) {
	all := []finding{{row: "r", what: "pause", unit: millis, got: 501.2, bound: 500}, {row: "r", what: "streams", got: 0, bound: 0}}
	var out strings.Builder
	if err := print(&out, all); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.Contains(lines[1], "501.2ms") || !strings.HasSuffix(lines[1], "MISSED") || strings.Contains(lines[2], "MISSED") {
		t.Error(out.String())
	}
}
