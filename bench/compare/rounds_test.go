package main

import (
	"math"
	"testing"
)

func TestFigures(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		values []float64
		want   figure
	}{
		{nil, figure{}},
		{[]float64{nan}, figure{}},
		{[]float64{3}, figure{Median: 3, Low: 3, High: 3, N: 1}},
		{[]float64{9, 1, 5}, figure{Median: 5, Low: 1, High: 9, N: 3}},
		{[]float64{4, 1, 2, 9, nan}, figure{Median: 3, Low: 1, High: 9, N: 4}},
	} {
		if got := figureOf(test.values); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.values, got, test.want)
		}
	}
}
