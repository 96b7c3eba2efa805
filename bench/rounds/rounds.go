// Package rounds sums up a quantity that several rounds of a measurement have measured.
package rounds

import (
	"fmt"
	"math"
	"slices"
)

// A Figure has the median, the minimum and the maximum over N rounds.
type Figure struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	N      int     `json:"n"`
}

// Of returns the figure of the values of the rounds. It leaves out NaN, a round without a value.
func Of(values []float64) Figure {
	values = slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	n := len(values)
	if n == 0 {
		return Figure{}
	}
	slices.Sort(values)
	return Figure{Median: (values[(n-1)/2] + values[n/2]) / 2, Low: values[0], High: values[n-1], N: n}
}

// Text returns the figure in a unit, as "median (low to high)".
func (f Figure) Text(unit float64) string {
	switch f.N {
	case 0:
		return ""
	case 1:
		return Short(f.Median / unit)
	default:
		return fmt.Sprintf("%s (%s to %s)", Short(f.Median/unit), Short(f.Low/unit), Short(f.High/unit))
	}
}

// Short returns a number with two or three significant digits.
func Short(v float64) string {
	switch size := max(v, -v); {
	case size >= 100:
		return fmt.Sprintf("%.0f", v)
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
