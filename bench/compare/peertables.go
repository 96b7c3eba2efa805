package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// A measure is a figure by which peers are compared. Less is better.
type measure struct {
	head     string
	scenario string
	unit     string
	size     float64 // of the unit
	of       func(*cell) float64
}

var measures = []measure{
	{"CPU per token, 40 streams", "40 streams", "µs", 1, func(c *cell) float64 { return c.cost(perToken) }},
	{"CPU per short request", "short saturated", "µs", 1, func(c *cell) float64 { return c.cost(perRequest) }},
	{"20 leave: stop p50", "20 leave", "ms", milli, func(c *cell) float64 { return own(c.Stop, p50) }},
	{"p99", "20 leave", "ms", milli, func(c *cell) float64 { return own(c.Stop, p99) }},
	{"100 leave: stop p50", "100 leave", "ms", milli, func(c *cell) float64 { return own(c.Stop, p50) }},
	{"p99", "100 leave", "ms", milli, func(c *cell) float64 { return own(c.Stop, p99) }},
	{"memory per stream", "400 open", "KiB", kibi, func(c *cell) float64 { return c.Memory }},
}

// values returns the values of a system by round, or NaN for rounds without one.
func (m *measure) values(r *report, system string) []float64 {
	all := slices.Repeat([]float64{math.NaN()}, r.Rounds)
	for _, c := range r.Cells {
		if c.Scenario == m.scenario && c.System == system {
			all[c.Round] = m.of(c)
		}
	}
	return all
}

// peerTables returns the table of the figures, and that of Whence's figures divided by the peers' in
// the same rounds.
func (r *report) peerTables() string {
	names := r.systems()
	failed := map[string]int64{}
	for _, c := range r.Cells {
		failed[c.System] += c.Failed
	}
	var b strings.Builder
	b.WriteString(r.head())
	b.WriteString("\n| |")
	for _, m := range measures {
		fmt.Fprintf(&b, " %s, %s |", m.head, m.unit)
	}
	b.WriteString(ruleOfMeasures())
	for _, name := range names {
		fmt.Fprintf(&b, "| %s |", strings.TrimSpace(name+" "+r.Peers[name]))
		for _, m := range measures {
			fmt.Fprintf(&b, " %s |", figureOf(m.values(r, name)).text(m.size))
		}
		b.WriteString("\n")
	}
	if !slices.Contains(names, serveName) {
		return b.String()
	}
	b.WriteString("\n" + r.peerRatios())
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		if failed[name] > 0 {
			fmt.Fprintf(&b, "\n%s: %d streams failed.\n", name, failed[name])
		}
	}
	for _, s := range slices.Sorted(maps.Keys(r.Says)) {
		r.problems(&b, s)
	}
	return b.String()
}

func ruleOfMeasures() string { return "\n|---|" + strings.Repeat("--:|", len(measures)) + "\n" }

// systems returns the names of the measured systems, in the order of their first cells.
func (r *report) systems() (names []string) {
	for _, c := range r.Cells {
		if !slices.Contains(names, c.System) {
			names = append(names, c.System)
		}
	}
	return names
}

// peerRatios returns the table of Whence's figures, divided by the figures of each peer.
func (r *report) peerRatios() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, divided by each peer in the same round. Above 1, in bold, Whence loses.\n\n| |", serveName)
	for _, m := range measures {
		fmt.Fprintf(&b, " %s |", m.head)
	}
	b.WriteString(ruleOfMeasures())
	for _, name := range r.systems() {
		if name == serveName || name == twoName {
			continue
		}
		fmt.Fprintf(&b, "| of %s's |", name)
		for _, m := range measures {
			fmt.Fprintf(&b, " %s |", loses(m.ratio(r, serveName, name)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// ratio returns the figure of a system divided by that of another one, of the same rounds.
func (m *measure) ratio(r *report, system, of string) figure {
	values, divisors := m.values(r, system), m.values(r, of)
	for i := range values {
		values[i] = per(values[i], divisors[i])
	}
	return figureOf(values)
}

// loses returns the text of a ratio.
func loses(f figure) string {
	if f.Median > 1 {
		return "**" + f.text(1) + "**"
	}
	return f.text(1)
}
