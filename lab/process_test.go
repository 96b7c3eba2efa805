package lab

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// shell starts a shell that runs a script.
func shell(t *testing.T, script string, args ...string) *Process {
	t.Helper()
	p, err := Start(Command{Name: "shell", File: "sh", Args: append([]string{"-c", script, "sh"}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.End)
	return p
}

// TestDescendantsAreCounted: the CPU time of a shell includes its child.
func TestDescendantsAreCounted(t *testing.T) {
	p := shell(t, "sh -c 'while :; do :; done' & trap \"kill $!\" TERM; wait")
	cpu := func() time.Duration {
		spent, err := p.CPU()
		if err != nil {
			t.Fatal(err)
		}
		return spent
	}
	begun := cpu()
	polltest.Eventually(t, "the child uses CPU time: the outer shell only waits", func() bool { return cpu()-begun >= 50*time.Millisecond })
	if n, err := p.RSS(); err != nil || n <= 0 {
		t.Errorf("the memory is %d bytes, %v", n, err)
	}
}

func TestEndedProcessHasNoCPU(t *testing.T) {
	p := shell(t, "exec sleep 600")
	p.End()
	if _, err := p.CPU(); err == nil {
		t.Error("an ended process has a CPU time")
	}
}

// TestAFrozenProcessEnds: End lets a process go on that a signal has stopped.
func TestAFrozenProcessEnds(t *testing.T) {
	p := shell(t, "exec sleep 600")
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := Await(t.Context(), "it is frozen", p.Frozen); err != nil {
		t.Fatal(err)
	}
	p.End()
	if !p.Ended() || p.Frozen() {
		t.Error("the process has not ended")
	}
}

// TestAServiceStartsAgainAtItsAddress: the second run gets the address that the first one chose, and
// the records of both are kept.
func TestAServiceStartsAgainAtItsAddress(t *testing.T) {
	p := shell(t, `echo "{\"msg\":\"listening\",\"addr\":\"chosen:$2\"}" >&2; exec sleep 600`, "--listen", "7", "--more")
	if addr, err := p.Listening(); err != nil || addr != "chosen:7" {
		t.Fatal(addr, err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Relaunch(); err != nil {
		t.Fatal(err)
	}
	if addr, err := p.Listening(); err != nil || addr != "chosen:chosen:7" || len(p.Runs()) != 2 || len(p.Runs()[0].Records()) != 1 {
		t.Error(addr, err, p.Runs())
	}
}

// TestAwaitFailsWhenAProcessEnds: no line can come any more.
func TestAwaitFailsWhenAProcessEnds(t *testing.T) {
	p := shell(t, "echo one; echo two; echo why >&2")
	if line, err := p.Await(p.Out, "a line", func(line string) bool { return line == "two" }); err != nil {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := p.Await(p.Out, "the third line", func(line string) bool { return line == "three" }); err == nil || !strings.Contains(err.Error(), "ended without the third line: why") {
		t.Error(err)
	}
}

// TestAServiceThatIsStartedAgainHasNoGrowth: the usage of a run is compared only with its own.
func TestAServiceThatIsStartedAgainHasNoGrowth(t *testing.T) {
	first, second := &Run{}, &Run{Out: newLines()}
	before := Usage{Goroutines: 10, Descriptors: 5, run: first}
	if u := (Usage{Goroutines: 30, Descriptors: 6, run: first}).Since(before); u.Goroutines != 20 || u.Descriptors != 1 {
		t.Errorf("the growth is %+v", u)
	}
	if u := (Usage{Goroutines: 30, Descriptors: 6, run: second}).Since(before); u.Goroutines != 0 || u.Descriptors != 0 {
		t.Errorf("after a restart, the growth is %+v", u)
	}
}

func TestRaceReportIsFoundInALog(t *testing.T) {
	r := &Run{Log: newLines()}
	if got := r.RaceReport(); got != "" {
		t.Errorf("an empty log has %q", got)
	}
	fmt.Fprintln(r.Log, `msg="stream ended"`)
	if got := r.RaceReport(); got != "" {
		t.Errorf("a log without a report has %q", got)
	}
	fmt.Fprint(r.Log, "==================\nWARNING: DATA RACE\nRead at 0x01 by goroutine 7:\n==================\nmore\n")
	if got, want := r.RaceReport(), "WARNING: DATA RACE\nRead at 0x01 by goroutine 7:"; got != want {
		t.Errorf("the report is %q, want %q", got, want)
	}
}

func TestSamplesAreSummedByLabels(t *testing.T) {
	s, err := parseSamples("# HELP a\na{hop=\"x\",reason=\"r\"} 1\na{hop=\"y\"} 2\nab 4\n\n")
	if err != nil || s.Sum("a") != 3 || s.Sum("a", "hop=x", "reason=r") != 1 || s.Sum("a", "hop=z") != 0 || !s.Has("ab") || s.Has("b") {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := parseSamples("a b c"); err == nil {
		t.Error("a value that is no number is accepted")
	}
}
