package main

import (
	"math"
)

// A row is the figures of a system in a scenario.
type row struct {
	Scenario  string            `json:"scenario"`
	System    string            `json:"system"`
	Unit      string            `json:"unit"`      // of Cost: token, request or leave
	Cost      figure            `json:"cost"`      // CPU of the system's processes, in microseconds for each unit
	Ratio     figure            `json:"ratio"`     // Cost, divided by nginx's in the same round
	Processes map[string]figure `json:"processes"` // CPU of each process, in microseconds for each unit
	Rate      figure            `json:"rate"`      // units a second
	Latency50 figure            `json:"latency_p50"`
	Latency99 figure            `json:"latency_p99"`
	TTFT50    figure            `json:"ttft_p50"` // these four in microseconds, less direct's in the same round
	TTFT99    figure            `json:"ttft_p99"`
	Memory    figure            `json:"memory"`   // bytes per open stream
	Stop50    figure            `json:"stop_p50"` // from a departure until the engine's stop, in microseconds
	Stop99    figure            `json:"stop_p99"`
	StopLast  figure            `json:"stop_last"` // from the first departure until the engine's last stop, in microseconds
	Wasted    figure            `json:"wasted"`    // tokens generated per departed client
	Failed    int64             `json:"failed"`    // streams, over all rounds
}

// units returns the number of tokens, requests or departures of a cell.
func (c *cell) units(unit string) float64 {
	switch unit {
	case perLeave:
		return float64(c.Left)
	case perRequest:
		return float64(c.Requests)
	default:
		return float64(c.Tokens)
	}
}

// cost returns the CPU time of the system's own processes per unit, in microseconds, or NaN if
// there were no units.
func (c *cell) cost(unit string) float64 {
	total := 0.0
	for name, t := range c.CPU {
		if name != "load" && name != "engine" {
			total += t
		}
	}
	return per(total, c.units(unit))
}

func per(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

// less returns a quantile minus direct's, or NaN if either has no values.
func less(a, direct quantiles, of func(quantiles) float64) float64 {
	if a.N == 0 || direct.N == 0 {
		return math.NaN()
	}
	return of(a) - of(direct)
}

func p50(q quantiles) float64 { return q.P50 }
func p99(q quantiles) float64 { return q.P99 }

// own returns a quantile, or NaN without values.
func own(q quantiles, of func(quantiles) float64) float64 {
	if q.N == 0 {
		return math.NaN()
	}
	return of(q)
}

// rowOf returns the figures of a system in a scenario, from the cells of a run. Comparing figures
// use cells of the same round.
func rowOf(s *scenario, system string, cells []*cell) row {
	at := func(system string, round int) *cell {
		for _, c := range cells {
			if c.Scenario == s.name && c.System == system && c.Round == round {
				return c
			}
		}
		return &cell{}
	}
	r := row{Scenario: s.name, System: system, Unit: s.unit(), Processes: map[string]figure{}}
	series := map[*figure][]float64{}
	processes := map[string][]float64{}
	add := func(f *figure, v float64) { series[f] = append(series[f], v) }
	for _, c := range cells {
		if c.Scenario != s.name || c.System != system {
			continue
		}
		direct, nginx := at(directName, c.Round), at(nginxName, c.Round)
		units := c.units(r.Unit)
		if system != directName {
			add(&r.Cost, c.cost(r.Unit))
			add(&r.Ratio, per(c.cost(r.Unit), nginx.cost(r.Unit)))
			add(&r.Latency50, less(c.Latency, direct.Latency, p50))
			add(&r.Latency99, less(c.Latency, direct.Latency, p99))
			add(&r.TTFT50, less(c.TTFT, direct.TTFT, p50))
			add(&r.TTFT99, less(c.TTFT, direct.TTFT, p99))
		} else {
			add(&r.Latency50, own(c.Latency, p50))
			add(&r.Latency99, own(c.Latency, p99))
			add(&r.TTFT50, own(c.TTFT, p50))
			add(&r.TTFT99, own(c.TTFT, p99))
		}
		if s.storm {
			add(&r.StopLast, own(c.Stop, func(quantiles) float64 { return c.StopLast }))
		} else {
			add(&r.Rate, per(units, c.Seconds))
		}
		if s.memory && system != directName {
			add(&r.Memory, c.Memory)
		}
		add(&r.Stop50, own(c.Stop, p50))
		add(&r.Stop99, own(c.Stop, p99))
		add(&r.Wasted, per(float64(c.Wasted), float64(c.Left)))
		for name, t := range c.CPU {
			processes[name] = append(processes[name], per(t, units))
		}
		r.Failed += c.Failed
	}
	for f, values := range series {
		*f = figureOf(values)
	}
	for name, values := range processes {
		r.Processes[name] = figureOf(values)
	}
	return r
}
