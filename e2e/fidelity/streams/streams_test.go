package streams_test

import (
	"testing"

	"github.com/whence-dev/whence/e2e/fidelity/streams"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestStreamsEqualTheUnstreamedAnswerAndTheEnginesTokens(t *testing.T) {
	row, err := streams.Compare(t.Context(), 100, 7)
	if err != nil {
		t.Fatal(err)
	}
	for _, difference := range row.Differences() {
		t.Error(difference)
	}
	if row.Choices < 200 || row.Stopped < 40 {
		t.Errorf("%d choices, of which %d were stopped: too few for a meaningful test", row.Choices, row.Stopped)
	}
}
