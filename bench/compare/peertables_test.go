package main

import (
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench/paced"
	"github.com/whence-dev/whence/internal/tier"
)

// TestPeersAreComparedByRound: the ratios are medians of ratios of one round, and those above 1 stand
// out.
func TestPeersAreComparedByRound(t *testing.T) {
	r := report{
		Machine: "M", Rounds: 3, Window: time.Second, Peers: map[string]string{nginxName: "1.22.1"},
		LeftOut: map[string]string{liteName: "litellm is not installed"},
	}
	for round, slow := range []float64{1, 10, 2} {
		add := func(scenario, system string, cpu, stop, memory float64) {
			r.Cells = append(r.Cells, &cell{
				Scenario: scenario, System: system, Round: round, Tokens: 100, Left: 20, CPU: map[string]float64{"engine": 500, "load": 1, "p": cpu * slow},
				Stop: quantiles{N: 20, P50: stop * slow, P99: 4 * stop * slow}, Memory: memory,
			})
		}
		add("40 streams", nginxName, 1000, 0, 0)
		add("40 streams", serveName, 4000, 0, 0)
		add("20 leave", nginxName, 0, 2000, 0)
		add("20 leave", serveName, 0, 1000, 0)
		add("400 open", nginxName, 0, 0, 18*kibi)
		add("400 open", serveName, 0, 0, 36*kibi)
	}
	got := r.peerTables()
	for _, want := range []string{
		"Left out: LiteLLM (litellm is not installed).",
		"| | CPU per token, 40 streams, µs | CPU per short request, µs | 20 leave: stop p50, ms | p99, ms |",
		"| nginx 1.22.1 | 20.0 (10.0 to 100) |  | 4.00 (2.00 to 20.0) | 16.0 (8.00 to 80.0) |  |  | 18.0 (18.0 to 18.0) |\n",
		"| of nginx's | **4.00 (4.00 to 4.00)** |  | 0.50 (0.50 to 0.50) | 0.50 (0.50 to 0.50) |  |  | **2.00 (2.00 to 2.00)** |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the tables lack %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "of "+serveName) {
		t.Errorf("Whence is compared with itself:\n%s", got)
	}
}

// TestMissingPeersAreLeftOut measures a few streams over the peers of Debian and over Whence. Peers of PyPI
// are not installed.
func TestMissingPeersAreLeftOut(t *testing.T) {
	tier.Full(t)
	chosen := []scenario{
		{name: "40 streams", says: "a few streams", streams: 4, pace: paced.Pace{Period: 10 * time.Millisecond}},
		{name: "20 leave", says: "a few clients that leave at once", streams: 4, pace: paced.Pace{Period: 10 * time.Millisecond}, storm: true},
	}
	b, err := newBench(&options{rounds: 1, window: 500 * time.Millisecond, peers: t.TempDir()}, chosen)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	r, err := b.compare(t.Context(), chosen)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{envoyName, routerName, smgName, liteName} {
		if !strings.Contains(r.LeftOut[name], "scripts/bench compare --peers installs it") {
			t.Errorf("%s: %s", name, r.LeftOut[name])
		}
	}
	for _, name := range []string{serveName, twoName} {
		if r.LeftOut[name] != "" {
			t.Errorf("%s did not start: %s", name, r.LeftOut[name])
		}
	}
	for _, c := range r.Cells {
		if c.Failed > 0 || len(c.Problems) > 0 {
			t.Errorf("%s, %s: %d streams failed: %v", c.Scenario, c.System, c.Failed, c.Problems)
		}
		if c.Scenario == "40 streams" && c.cost(perToken) <= 0 || c.Scenario == "20 leave" && c.Stop.N != 4 {
			t.Errorf("nothing was measured: %+v", c)
		}
	}
}
