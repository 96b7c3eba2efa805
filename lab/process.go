// Package lab runs Whence's services, and the servers that they need, as processes under faults, and
// observes them: their logs, metrics and profiles, their use of the machine, and the streams that they
// answer. It has the wires and the catalogue of faults that tests and measurements share.
//
// Its functions return errors, so that programs use them as well as tests. Every wait is bounded by
// Patience, which only a failure exhausts.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/whence-dev/whence/internal/loopback"
)

// Patience bounds every wait.
const Patience = loopback.Patience

// outputWithin bounds the time after the end of a program in which its output is read: a child of it may
// hold the output open.
const outputWithin = 10 * time.Second

// A Command is a program to run.
type Command struct {
	Name string // in messages and in tables
	File string
	Args []string
	Env  []string // variables, in addition to the environment of this process
	// Ready waits until the program can be used. nil means that a start does not wait.
	Ready func(*Process) error
}

// A Process is a program that runs. It may be started again after its end.
type Process struct {
	Command
	*Run           // the current one
	Earlier []*Run // that have ended
	Addr    string // where it listens, if it is a service of a Path
	Admin   string // the address of its profiles; "" for none
}

// A Run is one run of a process.
type Run struct {
	Out, Log *Lines // standard output and standard error, complete when the run has ended
	cmd      *exec.Cmd
	exited   chan struct{}
	ordered  atomic.Bool // Terminate or Kill was called
}

// launches counts the runs of this process.
var launches atomic.Int64

// Launches returns the number of processes that this process has started.
func Launches() int64 { return launches.Load() }

// Start starts a program. With an error, it returns the process only if it runs.
func Start(c Command) (*Process, error) {
	p := &Process{Command: c}
	err := p.Launch()
	if p.Run == nil {
		return nil, err
	}
	return p, err
}

// Launch starts the program of a process again, once it has ended.
func (p *Process) Launch() error {
	if p.Run != nil {
		if _, err := p.Status(); err != nil {
			return err
		}
	}
	r := &Run{Out: newLines(), Log: newLines(), exited: make(chan struct{})}
	r.cmd = exec.Command(p.File, p.Args...)
	r.cmd.Env = append(Environment(), p.Env...)
	r.cmd.Stdout, r.cmd.Stderr = r.Out, r.Log
	r.cmd.WaitDelay = outputWithin
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("%s does not start: %w", p.Name, err)
	}
	launches.Add(1)
	go func() {
		_ = r.cmd.Wait() // the status is in ProcessState
		close(r.exited)
	}()
	if p.Run != nil {
		p.Earlier = append(p.Earlier, p.Run)
	}
	p.Run = r
	if p.Ready == nil {
		return nil
	}
	return p.Ready(p)
}

// Relaunch starts a service that has ended again, at the address of its last run, and returns when it
// listens.
func (p *Process) Relaunch() error {
	addr, err := p.Listening()
	if err != nil {
		return err
	}
	if at := slices.Index(p.Args, "--listen"); at >= 0 {
		p.Args = slices.Clone(p.Args)
		p.Args[at+1] = addr
	}
	if err := p.Launch(); err != nil {
		return err
	}
	_, err = p.Listening()
	return err
}

// Environment returns the environment without the settings of the user's own Whence.
func Environment() []string {
	env := []string{"GORACE=atexit_sleep_ms=0"} // otherwise a program with the race detector takes a second to exit
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WHENCE_") {
			env = append(env, v)
		}
	}
	return env
}

// Runs returns all runs, oldest first.
func (p *Process) Runs() []*Run { return append(slices.Clone(p.Earlier), p.Run) }

// Pid returns the id of the process.
func (r *Run) Pid() int { return r.cmd.Process.Pid }

// Exited returns a channel that is closed when the run has ended.
func (r *Run) Exited() <-chan struct{} { return r.exited }

// Ended reports whether the run has ended.
func (r *Run) Ended() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

// Ordered reports whether Terminate or Kill was called.
func (r *Run) Ordered() bool { return r.ordered.Load() }

// Signal sends a signal. To signal a run that has ended is not an error.
func (r *Run) Signal(s syscall.Signal) error {
	if err := r.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Terminate sends SIGTERM.
func (r *Run) Terminate() error {
	r.ordered.Store(true)
	return r.Signal(syscall.SIGTERM)
}

// Kill sends SIGKILL and returns when the run has ended.
func (r *Run) Kill() error {
	r.ordered.Store(true)
	if err := r.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, err := r.Status()
	return err
}

// Status waits for the end of a run, and returns its status.
func (r *Run) Status() (int, error) {
	select {
	case <-r.exited:
		return r.cmd.ProcessState.ExitCode(), nil
	case <-time.After(Patience):
		return 0, fmt.Errorf("the process still runs after %v", Patience)
	}
}

// endWithin bounds the time that End gives a process.
const endWithin = 5 * time.Second

// End ends a process: at once if it does not react to SIGTERM.
func (p *Process) End() {
	_ = p.Signal(syscall.SIGCONT) // it may be frozen
	_ = p.Terminate()
	select {
	case <-p.exited:
	case <-time.After(endWithin):
		_ = p.Kill()
	}
}

// Await returns the first line of the output (p.Out or p.Log) that match accepts, and waits for it if
// necessary.
func (p *Process) Await(l *Lines, what string, match func(line string) bool) (string, error) {
	late := time.After(Patience)
	for from, gone := 0, false; ; {
		lines, grown := l.Since(from)
		if at := slices.IndexFunc(lines, match); at >= 0 {
			return lines[at], nil
		}
		if from += len(lines); gone {
			return "", fmt.Errorf("%s ended without %s: %s", p.Name, what, p.Tail())
		}
		select {
		case <-grown:
		case <-p.exited:
			gone = true
		case <-late:
			return "", fmt.Errorf("%s did not write %s within %v", p.Name, what, Patience)
		}
	}
}

// Tail returns the end of what the current run has logged.
func (r *Run) Tail() string {
	const length = 4 << 10
	text := r.Log.String()
	return text[max(0, len(text)-length):]
}

// RaceReport returns the race detector's first report in the log of a run, or "".
func (r *Run) RaceReport() string {
	all := r.Log.All()
	begin := slices.IndexFunc(all, func(line string) bool { return strings.HasPrefix(line, "WARNING: DATA RACE") })
	if begin < 0 {
		return ""
	}
	report := all[begin:]
	if end := slices.Index(report, "=================="); end >= 0 {
		report = report[:end]
	}
	return strings.Join(report, "\n")
}

// Await polls ok until it returns true, or fails after Patience. It is for conditions without an event.
func Await(ctx context.Context, what string, ok func() bool) error {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for until := time.Now().Add(Patience); !ok(); {
		if time.Now().After(until) {
			return fmt.Errorf("timeout after %v: %s", Patience, what)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Pause waits for d, or until ctx ends. Use it for the schedule of faults or the pace of requests, never
// to wait for a condition.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
