// Command plot draws the results of scripts/bench compare: for each scenario the CPU time of each
// system, divided by nginx's.
//
//	plot FILE.json FILE.svg
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// A report has the fields of a run's JSON that the plot needs.
type report struct {
	Rows []struct {
		Scenario string `json:"scenario"`
		System   string `json:"system"`
		Ratio    struct {
			Median, Low, High float64
			N                 int
		} `json:"ratio"`
	} `json:"rows"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: plot FILE.json FILE.svg")
		os.Exit(2)
	}
	if err := draw(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	barWidth = 8 // points
)

// colours has the colours of the systems, in order; they also differ in brightness.
var colours = []color.Color{
	color.RGBA{0x9e, 0x9e, 0x9e, 0xff}, color.RGBA{0xbc, 0xcf, 0x9a, 0xff}, color.RGBA{0xe0, 0xa4, 0x58, 0xff},
	color.RGBA{0x2f, 0x5d, 0x8a, 0xff}, color.RGBA{0x7f, 0xb2, 0xd9, 0xff}, color.RGBA{0x5b, 0x3f, 0x7a, 0xff},
}

func draw(in, out string) error {
	b, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	var scenarios, systems []string
	for _, row := range r.Rows {
		if row.Ratio.N == 0 {
			continue
		}
		if !slices.Contains(scenarios, row.Scenario) {
			scenarios = append(scenarios, row.Scenario)
		}
		if !slices.Contains(systems, row.System) {
			systems = append(systems, row.System)
		}
	}
	if len(systems) == 0 {
		return errors.New("no system has a ratio to nginx, so there is nothing to draw")
	}
	p := plot.New()
	p.Title.Text = "CPU of the system, divided by nginx's (log scale, median of the rounds)"
	p.Y.Scale = logScale{}
	least, greatest := 0.5, 2.0
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	p.NominalX(scenarios...)
	for i, system := range systems {
		bars := make(plotter.Values, len(scenarios))
		for j := range bars {
			bars[j] = 1
		}
		for _, row := range r.Rows {
			if j := slices.Index(scenarios, row.Scenario); row.System == system && row.Ratio.N > 0 {
				bars[j] = row.Ratio.Median
				least, greatest = min(least, row.Ratio.Median/1.2), max(greatest, row.Ratio.Median*2)
			}
		}
		chart, err := plotter.NewBarChart(bars, vg.Points(barWidth))
		if err != nil {
			return err
		}
		chart.Color, chart.LineStyle.Width = colours[i%len(colours)], 0
		chart.Offset = vg.Points(barWidth * (float64(i) - float64(len(systems)-1)/2))
		p.Add(chart)
		p.Legend.Add(system, chart)
	}
	p.Y.Min, p.Y.Max = least, greatest // Add has lowered Min to 0, where the bars begin
	p.Y.Tick.Marker = plot.ConstantTicks(marks(least, greatest))
	p.X.Min, p.X.Max = -0.5, float64(len(scenarios))-0.5
	return p.Save(vg.Length(2+1.2*float64(len(scenarios)))*vg.Inch, 4*vg.Inch, out)
}

// logScale is plot.LogScale for bars, which begin at 0: values up to the least ratio are at the
// bottom.
type logScale struct{}

// Normalize implements plot.Normalizer.
func (logScale) Normalize(least, greatest, x float64) float64 {
	x = max(x, least)
	return (math.Log(x) - math.Log(least)) / (math.Log(greatest) - math.Log(least))
}

// marks returns the ticks of the axis: 1, 2, 5, 10, ...
func marks(least, greatest float64) (all []plot.Tick) {
	for _, v := range []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100} {
		if least <= v && v <= greatest {
			all = append(all, plot.Tick{Value: v, Label: fmt.Sprint(v)})
		}
	}
	return all
}
