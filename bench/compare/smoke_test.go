package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench/paced"
	"github.com/whence-dev/whence/internal/tier"
)

// TestMain lets the test binary run as the processes that the comparison starts from its own
// binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && (os.Args[1] == "engine" || os.Args[1] == "relay" || os.Args[1] == "edge") {
		fmt.Fprintln(os.Stderr, run(context.Background(), os.Args[1:], os.Stdout))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestComparisonMeasuresEverySystem runs a few streams over every installed system: all tokens
// arrive, the CPU of all processes is counted, and the histograms are filled. It checks no times.
func TestComparisonMeasuresEverySystem(t *testing.T) {
	tier.Full(t)
	chosen := []scenario{
		{name: "streams", says: "a few streams, and a client that reads nothing", streams: 4, unread: 1, pace: paced.Pace{Period: 10 * time.Millisecond}, ttft: true, memory: true},
		{name: "short", says: "a few requests", streams: 2, tokens: 5},
		{name: "open", says: "a few requests at a fixed rate", rate: 20, tokens: 5},
		{name: "churn", says: "a few clients that leave", streams: 4, pace: paced.Pace{Period: 10 * time.Millisecond}, life: 100 * time.Millisecond},
		{name: "storm", says: "a few clients that leave at once", streams: 4, pace: paced.Pace{Period: 10 * time.Millisecond}, storm: true},
	}
	b, err := newBench(&options{rounds: 1, window: 500 * time.Millisecond}, chosen)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	r, err := b.compare(t.Context(), chosen)
	if err != nil {
		t.Fatal(err)
	}
	systems := map[string][]string{
		directName: {}, nginxName: {"nginx"}, "HAProxy": {"haproxy"}, "grpc-go relay": {"relay", "edge"}, whenceName: {"api-service", "chat-service"}, linksName: {"api-service", "chat-service"},
		joinedName: {"gateway"}, beforeName: {"worker", "gateway"},
	}
	for name, reason := range r.LeftOut {
		if name != nginxName && name != "HAProxy" || os.Getenv("CI") == "true" {
			t.Errorf("%s did not start: %s", name, reason)
		}
		delete(systems, name)
	}
	if want := len(systems) * len(chosen); len(r.Cells) != want || len(r.Rows) != want {
		t.Fatalf("there are %d cells and %d rows, want %d", len(r.Cells), len(r.Rows), want)
	}
	for _, c := range r.Cells {
		where := c.Scenario + ", " + c.System
		if c.Failed > 0 || len(c.Problems) > 0 {
			t.Errorf("%s: %d streams failed: %v", where, c.Failed, c.Problems)
		}
		if c.Scenario == "storm" {
			if c.Left != 4 || c.Stop.N != 4 || c.StopLast < c.Stop.P50 {
				t.Errorf("%s: not all clients have left: %+v", where, c)
			}
		} else if c.Tokens == 0 || c.Latency.N == 0 || c.TTFT.N == 0 || c.Scenario != "streams" && c.Scenario != "churn" && c.Requests == 0 {
			t.Errorf("%s: nothing was measured: %+v", where, c)
		}
		if c.Scenario == "churn" && (c.Left == 0 || c.Stop.N == 0) {
			t.Errorf("%s: no client has left: %+v", where, c)
		}
		for _, process := range append(systems[c.System], "engine", "load") {
			if c.CPU[process] <= 0 {
				t.Errorf("%s: no CPU of %s is counted: %v", where, process, c.CPU)
			}
		}
	}
	if r.markdown() == "" {
		t.Error("there are no tables")
	}
}
