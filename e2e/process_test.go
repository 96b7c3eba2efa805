package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/lab"
)

// patience bounds every wait. It is generous: only a failure takes this long.
const patience = lab.Patience

// A process is a running command of a test.
type process struct {
	*lab.Process
	awaited bool // the test waits for the end of the process
}

// start starts a command. At the end of the test the command must still run, unless the test itself
// has ended it, and must end with status 0 on SIGTERM. It must not have reported a data race, which
// only commands built with -race do. If the test fails, the command's log is printed.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return startFile(t, name, binary(t, name), append(subcommand(name), args...)...)
}

// startFile is start for other programs.
func startFile(t *testing.T, name, file string, args ...string) *process {
	t.Helper()
	return startCommand(t, lab.Command{Name: name, File: file, Args: args, Env: []string{clockEnv + "=" + filepath.Join(binDir, clockDir)}})
}

// startCommand is start for a command of package lab.
func startCommand(t *testing.T, c lab.Command) *process {
	t.Helper()
	started, err := lab.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Process: started}
	t.Cleanup(func() {
		if !p.awaited && !p.Ordered() {
			p.terminate(t)
			p.exit(t)
		}
		for _, run := range p.Runs() {
			if report := run.RaceReport(); report != "" {
				t.Errorf("%s has a data race:\n%s", c.Name, report)
			}
			if t.Failed() {
				t.Logf("%s %s logged:\n%s", c.Name, strings.Join(c.Args, " "), run.Log)
			}
		}
	})
	return p
}

// launch starts a program that has ended again.
func (p *process) launch(t *testing.T) {
	t.Helper()
	p.awaited = false // the test waits for the end of the new run only if it says so again
	if err := p.Launch(); err != nil {
		t.Fatal(err)
	}
}

// relaunch starts a service that has ended again, on its old address.
func (p *process) relaunch(t *testing.T) {
	t.Helper()
	p.awaited = false
	if err := p.Relaunch(); err != nil {
		t.Fatal(err)
	}
}

// signal sends a signal.
func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// terminate sends SIGTERM.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := p.Terminate(); err != nil {
		t.Errorf("SIGTERM for %s: %v", p.Name, err)
	}
}

// exit waits for the end of a terminated process and checks that its status is 0.
func (p *process) exit(t *testing.T) {
	t.Helper()
	p.exitWith(t, 0)
}

// exitWith waits for the end of a process and checks its status.
func (p *process) exitWith(t *testing.T, want int) {
	t.Helper()
	p.awaited = true
	status, err := p.Status()
	if err != nil {
		t.Errorf("%s: %v", p.Name, errors.Join(err, p.Kill()))
	} else if status != want {
		t.Errorf("%s ended with status %d, not %d", p.Name, status, want)
	}
}

// kill sends SIGKILL and returns when the process has ended.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatalf("SIGKILL for %s: %v", p.Name, err)
	}
}

// freeze stops a process until thaw or the end of the test.
func (p *process) freeze(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	t.Cleanup(func() { p.thaw(t) })
}

func (p *process) thaw(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGCONT)
}

// memory returns the resident memory of the process, in bytes.
func (p *process) memory(t *testing.T) int64 {
	t.Helper()
	n, err := p.RSS()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// cpu returns the CPU time that the process has used.
func (p *process) cpu(t *testing.T) time.Duration {
	t.Helper()
	d, err := p.CPU()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// await returns the first line of l (p.Out or p.Log) that match accepts, and waits for it if
// necessary.
func (p *process) await(t *testing.T, l *lab.Lines, what string, match func(line string) bool) string {
	t.Helper()
	line, err := p.Await(l, what, match)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// logged waits for the first record that match accepts.
func (p *process) logged(t *testing.T, what string, match func(record) bool) record {
	t.Helper()
	r, err := p.Logged(what, match)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// listening returns the address that the process has chosen.
func (p *process) listening(t *testing.T) string {
	t.Helper()
	return must(t)(p.Listening())
}

// must returns a function that returns its value, or fails the test.
func must(t *testing.T) func(value string, err error) string {
	t.Helper()
	return func(value string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// A record is one line of a service's log.
type record = lab.Record

// ended returns what a hop logged about the end of a stream.
func (w *whence) ended(t *testing.T, hop, stream string) record {
	t.Helper()
	return w.processes[lab.ServiceOf(hop)].logged(t, fmt.Sprintf("how stream %s ended on %s", stream, hop), func(r record) bool {
		return r.Msg == "stream ended" && r.Stream == stream && r.Hop == hop
	})
}

// hops lists all hops in the order of requests.
var hops = []string{"api-service", "chat-service", "llm-worker/0"}

// clientGone checks that every hop logged that the client left, with the path of the ending.
func (w *whence) clientGone(t *testing.T, stream string) {
	t.Helper()
	path := "client"
	for _, hop := range hops {
		path += " > " + hop
		got := w.ended(t, hop, stream)
		if got.Reason != "client_gone" || got.Origin != "client" || got.Path != path {
			t.Errorf("%s logged reason %s, origin %s, path %q; want client_gone, client, %q", hop, got.Reason, got.Origin, got.Path, path)
		}
	}
}

// missing ends a test that cannot run here: the test is skipped, or fails with CI=true.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// tool returns the path of the first command of names that is installed.
func tool(t *testing.T, names ...string) string {
	t.Helper()
	path, err := lab.Tool(names...)
	if err != nil {
		missing(t, "%v", err)
	}
	return path
}
