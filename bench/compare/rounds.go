package main

import (
	"fmt"
	"math"
	"slices"
)

// A figure has the median, the minimum and the maximum over N rounds.
type figure struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	N      int     `json:"n"`
}

// figureOf returns the figure of the values of the rounds. It leaves out NaN, a round without a value.
func figureOf(values []float64) figure {
	values = slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	n := len(values)
	if n == 0 {
		return figure{}
	}
	slices.Sort(values)
	return figure{Median: (values[(n-1)/2] + values[n/2]) / 2, Low: values[0], High: values[n-1], N: n}
}

// text returns the figure in a unit, as "median (low to high)".
func (f figure) text(unit float64) string {
	switch f.N {
	case 0:
		return ""
	case 1:
		return short(f.Median / unit)
	default:
		return fmt.Sprintf("%s (%s to %s)", short(f.Median/unit), short(f.Low/unit), short(f.High/unit))
	}
}

// short returns a number with two or three significant digits.
func short(v float64) string {
	switch size := max(v, -v); {
	case size >= 100:
		return fmt.Sprintf("%.0f", v)
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
