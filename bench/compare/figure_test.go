package main

import (
	"math"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench/load"
	"github.com/whence-dev/whence/bench/paced"
)

// TestRatiosAreOfOneRound: in a slow hour of the machine the costs of a round are high, but the
// ratio is right.
func TestRatiosAreOfOneRound(t *testing.T) {
	s := &scenario{name: "s"}
	var cells []*cell
	for round, slow := range []float64{1, 10, 2} {
		latency := func(p50 float64) quantiles { return quantiles{N: 10, P50: p50 * slow, P99: 2 * p50 * slow} }
		cells = append(cells,
			&cell{Scenario: "s", System: directName, Round: round, Tokens: 100, Seconds: 2, CPU: map[string]float64{"engine": 500, "load": 1}, Latency: latency(100)},
			&cell{Scenario: "s", System: nginxName, Round: round, Tokens: 100, Seconds: 2, CPU: map[string]float64{"engine": 500, "load": 1, "nginx": 1000 * slow}, Latency: latency(150)},
			&cell{Scenario: "s", System: "w", Round: round, Tokens: 50, Seconds: 2, CPU: map[string]float64{"engine": 500, "load": 1, "a": 500 * slow, "b": 1000 * slow}, Latency: latency(300)},
			&cell{Scenario: "another", System: "w", Round: round, Tokens: 1, CPU: map[string]float64{"a": 1}},
		)
	}
	got := rowOf(s, "w", cells)
	if want := (figure{Median: 3, Low: 3, High: 3, N: 3}); got.Ratio != want {
		t.Errorf("the ratio is %+v, want %+v", got.Ratio, want)
	}
	if want := (figure{Median: 60, Low: 30, High: 300, N: 3}); got.Cost != want {
		t.Errorf("the cost is %+v, want %+v", got.Cost, want)
	}
	if want := (figure{Median: 20, Low: 10, High: 100, N: 3}); got.Processes["a"] != want {
		t.Errorf("process a costs %+v, want %+v", got.Processes["a"], want)
	}
	if want := (figure{Median: 400, Low: 200, High: 2000, N: 3}); got.Latency50 != want {
		t.Errorf("the added latency is %+v, want %+v", got.Latency50, want)
	}
	if want := (figure{Median: 25, Low: 25, High: 25, N: 3}); got.Rate != want {
		t.Errorf("the rate is %+v, want %+v", got.Rate, want)
	}
	if got.Stop50.N != 0 || got.TTFT50.N != 0 || got.Memory.N != 0 {
		t.Errorf("figures without values: %+v", got)
	}
	if direct := rowOf(s, directName, cells); direct.Latency99.Median != 400 || direct.Cost.N != 0 {
		t.Errorf("direct: %+v", direct)
	}
}

// TestCostWithoutNginx: a run without nginx has no ratios.
func TestCostWithoutNginx(t *testing.T) {
	s := &scenario{name: "s", tokens: 5}
	got := rowOf(s, "w", []*cell{{Scenario: "s", System: "w", Requests: 10, Tokens: 50, CPU: map[string]float64{"a": 500}}})
	if got.Unit != "request" || got.Cost.Median != 50 || got.Ratio.N != 0 {
		t.Errorf("%+v", got)
	}
}

func TestDeparturesFindTheirEndings(t *testing.T) {
	at := time.Unix(1700000000, 0)
	var c cell
	c.departures([]load.Departure{
		{Stream: 1, At: at, Received: 10},
		{Stream: 2, At: at, Received: 10},
		{Stream: 3, At: at},              // the engine never received the request
		{Stream: 4, At: at, Received: 5}, // complete before its client left
	}, map[uint64]paced.Ending{
		1: {Stream: 1, At: at.Add(2 * time.Millisecond), Generated: 13, Stopped: true},
		2: {Stream: 2, At: at.Add(5 * time.Millisecond), Generated: 10, Stopped: true},
		4: {Stream: 4, At: at, Generated: 5},
	})
	if c.Left != 2 || c.Unheard != 2 || c.Wasted != 3 || c.Stop.N != 2 || c.StopLast != 5000 || math.Abs(c.Stop.P50-2000) > 2 {
		t.Errorf("%+v", c)
	}
}
