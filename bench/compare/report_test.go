package main

import (
	"strings"
	"testing"
	"time"
)

func TestTablesShowTheMeasurements(t *testing.T) {
	r := report{
		Machine: "M", Commit: "c", Date: time.Unix(0, 0).UTC(), Rounds: 3, Window: time.Second,
		LeftOut: map[string]string{"HAProxy": "not installed\nreally"}, Says: map[string]string{"spread": "200 streams"},
		Rows: []row{
			{Scenario: "spread", System: directName, Unit: "token", Latency50: figure{Median: 1500, Low: 1000, High: 2000, N: 3}},
			{Scenario: "spread", System: "nginx", Unit: "token", Cost: figure{Median: 20, Low: 19, High: 21, N: 3}, Ratio: figure{Median: 1, Low: 1, High: 1, N: 3}, Latency50: figure{Median: 340, Low: 300, High: 400, N: 3}, Processes: map[string]figure{"nginx": {Median: 20, Low: 19, High: 21, N: 3}}, Failed: 2},
			{Scenario: "spread", System: linksName, Unit: "token", Ratio: figure{Median: 0.9, Low: 0.9, High: 0.9, N: 3}},
		},
	}
	got := r.markdown()
	for _, want := range []string{
		"Left out: HAProxy (not installed).", "### Spread", "| | CPU per token, µs | of nginx's | latency p50, ms |\n",
		"| direct (others: more than this) |  |  | 1.50 (1.00 to 2.00) |\n", "| nginx | 20.0 (19.0 to 21.0) | 1.00 (1.00 to 1.00) | 0.34 (0.30 to 0.40) |\n",
		"nginx: nginx 20.0;", "nginx: 2 streams failed.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the tables lack %q:\n%s", want, got)
		}
	}
	if got, want := r.ratioTable(), "| CPU, divided by nginx's | Whence over links |\n|---|--:|\n| **spread**: 200 streams | 0.90 |\n"; got != want {
		t.Errorf("the table of ratios is\n%s, want\n%s", got, want)
	}
	if strings.Contains(got, "memory") {
		t.Errorf("there is a column without figures:\n%s", got)
	}
}

func TestScenariosAreChosenByName(t *testing.T) {
	for only, want := range map[string]int{"spread": 1, "churn": 2, "Short fixed": 1, "spread,in step": 2} {
		if got, err := (&options{only: only}).scenarios(); err != nil || len(got) != want {
			t.Errorf("--only %q: %d scenarios, %v", only, len(got), err)
		}
	}
	if got, err := (&options{quick: true}).scenarios(); err != nil || len(got) != len(quick) {
		t.Errorf("--quick: %d scenarios, %v", len(got), err)
	}
	if _, err := (&options{only: "nothing"}).scenarios(); err == nil {
		t.Error("--only nothing is accepted")
	}
}

func TestSystemsAreChosenByName(t *testing.T) {
	o := options{systems: "nginx,Whence over links"}
	for name, want := range map[string]bool{directName: true, nginxName: true, linksName: true, otherName: true, joinedName: false, whenceName: false} {
		if o.compares(name) != want {
			t.Errorf("%s: compared is %v", name, !want)
		}
	}
}
