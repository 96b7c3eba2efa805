package rounds_test

import (
	"math"
	"testing"

	"github.com/whence-dev/whence/bench/rounds"
)

func TestFigures(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		values []float64
		want   rounds.Figure
	}{
		{nil, rounds.Figure{}},
		{[]float64{nan}, rounds.Figure{}},
		{[]float64{3}, rounds.Figure{Median: 3, Low: 3, High: 3, N: 1}},
		{[]float64{9, 1, 5}, rounds.Figure{Median: 5, Low: 1, High: 9, N: 3}},
		{[]float64{4, 1, 2, 9, nan}, rounds.Figure{Median: 3, Low: 1, High: 9, N: 4}},
	} {
		if got := rounds.Of(test.values); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.values, got, test.want)
		}
	}
}
