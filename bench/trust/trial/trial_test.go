package trial

import (
	"testing"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/lab"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestHangingStreamsAreFound: a hanging stream is found even if the row itself has waited for it.
func TestHangingStreamsAreFound(t *testing.T) {
	one := New(nil, 3, 0, Row{Kept: true})
	one.Readers = []*reader.Reader{{Ending: reader.Left}, {Ending: reader.Completed}, {Ending: reader.Left}}
	all := one.common(t.Context())
	if all[0].What != "streams that hang" || all[0].Got != 2 || all[0].Within() {
		t.Errorf("%+v", all[0])
	}
}

// TestFaultsStrikeRunningStreams: a row whose streams ended before the fault is an error.
func TestFaultsStrikeRunningStreams(t *testing.T) {
	one := New(nil, 2, 0, Row{})
	if err := one.AllRun(); err != nil {
		t.Error(err)
	}
	one.run(func() {})
	one.Reading.Wait()
	if err := one.AllRun(); err == nil {
		t.Error("AllRun does not report a stream that ended before the fault")
	}
}

// TestGrowthIgnoresOneStep: a difference within noise is none, and a larger one counts from there.
func TestGrowthIgnoresOneStep(t *testing.T) {
	if got := Growth(100*time.Millisecond, 100*time.Millisecond+noise); got != 0 {
		t.Errorf("within noise, the growth is %v", got)
	}
	if got := Growth(100*time.Millisecond, 150*time.Millisecond+noise); got != 50 {
		t.Errorf("the growth is %v, not 50", got)
	}
}

// TestEachBoundOfARowNeedsAFigure: the figures of a row get the bounds of the catalogue, and a bound
// without a figure is an error.
func TestEachBoundOfARowNeedsAFigure(t *testing.T) {
	r := Row{Name: "llm-worker is killed, another one continues"}
	all := []Finding{{What: "longest pause of a stream", Got: 501}, {What: "new requests that fail", Got: 1}}
	if err := r.bound(all); err == nil {
		t.Error("the bound of the time to first token has no figure, which is no error")
	}
	all = append(all, Beside(nil, nil)...)
	if err := r.bound(all); err != nil || all[0].Unit != lab.Millis || all[0].Bound != 500 || all[1].Bound != 0 || all[0].Within() || all[1].Within() {
		t.Errorf("%v: %+v", err, all)
	}
	if err := (&Row{Name: "nothing"}).bound(nil); err == nil {
		t.Error("a row outside the catalogue is no error")
	}
}
