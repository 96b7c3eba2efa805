package main

import (
	"slices"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/trust/stand"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRowsFindEveryStream runs four rows with a few streams: every stream has its text and its
// ending. It checks no times.
func TestRowsFindEveryStream(t *testing.T) {
	if testing.Short() {
		t.Skip("this test builds the services")
	}
	b, err := stand.Build(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, r := range rows {
		if !slices.Contains([]string{"worker killed, another is there", "api-service gets a second signal", "workers restart, one after another", "the processes of clients are killed"}, r.name) {
			continue
		}
		one := newTrial(b, 3, r)
		all, err := one.play(t.Context())
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
		if counts < 4 || len(one.readers) != 3 {
			t.Errorf("%s: %d figures of %d streams", r.name, counts, len(one.readers))
		}
	}
}

// TestHangingStreamsAreFound: a hanging stream is found even if the row itself has waited for it.
func TestHangingStreamsAreFound(t *testing.T) {
	one := newTrial(nil, 3, row{kept: true})
	one.readers = []*reader.Reader{{Ending: reader.Left}, {Ending: reader.Completed}, {Ending: reader.Left}}
	all := one.common(t.Context())
	if all[0].What != "streams that hang" || all[0].Got != 2 || all[0].Within() {
		t.Errorf("%+v", all[0])
	}
}

// TestFaultsStrikeRunningStreams: a row whose streams ended before the fault is an error.
func TestFaultsStrikeRunningStreams(t *testing.T) {
	one := newTrial(nil, 2, row{})
	if err := one.allRun(); err != nil {
		t.Error(err)
	}
	one.run(func() {})
	one.reading.Wait()
	if err := one.allRun(); err == nil {
		t.Error("allRun does not report a stream that ended before the fault")
	}
}

// TestGrowthIgnoresOneStep: a difference within noise is none, and a larger one counts from there.
func TestGrowthIgnoresOneStep(t *testing.T) {
	if got := growth(100*time.Millisecond, 100*time.Millisecond+noise); got != 0 {
		t.Errorf("within noise, the growth is %v", got)
	}
	if got := growth(100*time.Millisecond, 150*time.Millisecond+noise); got != 50 {
		t.Errorf("the growth is %v, not 50", got)
	}
}
