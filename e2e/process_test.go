package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait. It is generous: only a failure takes this long.
const patience = 2 * time.Minute

// A process is a running command.
type process struct {
	name   string
	args   []string
	cmd    *exec.Cmd
	out    *lines
	logs   *lines
	exited chan struct{} // closed when the process has ended and out and logs are complete
	ended  bool          // the test itself ended the process
}

// start starts a command. At the end of the test the command must still run, unless the test itself
// has ended it, and must end with status 0 on SIGTERM. It must not have reported a data race, which
// only commands built with -race do. If the test fails, the command's log is printed.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := startFile(t, name, binary(t, name), append(subcommand(name), args...)...)
	p.args = args
	return p
}

// startFile is start for other programs.
func startFile(t *testing.T, name, file string, args ...string) *process {
	t.Helper()
	p := &process{name: name, args: args, out: newLines(), logs: newLines(), exited: make(chan struct{})}
	p.cmd = exec.Command(file, args...)
	p.cmd.Env = cleanEnv()
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.logs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the status is in ProcessState
		close(p.exited)
	}()
	t.Cleanup(func() {
		if !p.ended {
			p.terminate(t)
			p.exit(t)
		}
		if report := raceReport(p.logs); report != "" {
			t.Errorf("%s has a data race:\n%s", name, report)
		}
		if t.Failed() {
			t.Logf("%s %s logged:\n%s", name, strings.Join(args, " "), p.logs)
		}
	})
	return p
}

// raceReport returns the race detector's first report in the output of a process, or "".
func raceReport(logs *lines) string {
	const rule = "=================="
	all, _ := logs.since(0)
	begin := slices.IndexFunc(all, func(line string) bool { return strings.HasPrefix(line, "WARNING: DATA RACE") })
	if begin < 0 {
		return ""
	}
	report := all[begin:]
	if end := slices.Index(report, rule); end >= 0 {
		report = report[:end]
	}
	return strings.Join(report, "\n")
}

// cleanEnv returns the environment without the settings of the user's own Whence.
func cleanEnv() []string {
	env := []string{
		clockEnv + "=" + filepath.Join(binDir, clockDir),
		"GORACE=atexit_sleep_ms=0", // otherwise a command with the race detector takes a second to exit
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WHENCE_") {
			env = append(env, v)
		}
	}
	return env
}

// terminate sends SIGTERM.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	p.ended = true
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("SIGTERM for %s: %v", p.name, err)
	}
}

// exit waits for the end of a terminated process and checks that its status is 0.
func (p *process) exit(t *testing.T) {
	t.Helper()
	p.exitWith(t, 0)
}

// exitWith waits for the end of a terminated process and checks its status.
func (p *process) exitWith(t *testing.T, status int) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Errorf("%s still runs %v after SIGTERM", p.name, patience)
		p.kill(t)
		return
	}
	if state := p.cmd.ProcessState; state.ExitCode() != status {
		t.Errorf("%s ended with %v, not with status %d", p.name, state, status)
	}
}

// kill sends SIGKILL and returns when the process has ended.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.ended = true
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("SIGKILL for %s: %v", p.name, err)
	}
	<-p.exited
}

// await returns the first line of l (p.out or p.logs) that match accepts, and waits for it if
// necessary.
func (p *process) await(t *testing.T, l *lines, what string, match func(line string) bool) string {
	t.Helper()
	late := time.After(patience)
	for from, gone := 0, false; ; {
		lines, grown := l.since(from)
		for _, line := range lines {
			if match(line) {
				return line
			}
		}
		from += len(lines)
		if gone {
			t.Fatalf("%s ended without %s", p.name, what)
		}
		select {
		case <-grown:
		case <-p.exited:
			gone = true
		case <-late:
			t.Fatalf("%s did not write %s within %v", p.name, what, patience)
		}
	}
}
