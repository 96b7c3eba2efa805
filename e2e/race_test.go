package e2e

import (
	"fmt"
	"testing"
)

func TestRaceReportIsFoundInALog(t *testing.T) {
	t.Parallel()
	logs := newLines()
	if got := raceReport(logs); got != "" {
		t.Errorf("an empty log has %q", got)
	}
	fmt.Fprintln(logs, `msg="stream ended"`)
	if got := raceReport(logs); got != "" {
		t.Errorf("a log without a report has %q", got)
	}
	fmt.Fprint(logs, "==================\nWARNING: DATA RACE\nRead at 0x01 by goroutine 7:\n==================\nmore\n")
	if got, want := raceReport(logs), "WARNING: DATA RACE\nRead at 0x01 by goroutine 7:"; got != want {
		t.Errorf("the report is %q, want %q", got, want)
	}
}
