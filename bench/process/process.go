// Package process runs the programs of a measurement, and reads their costs from the Linux kernel:
// CPU time and memory, including descendants.
package process

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	readyWithin = 30 * time.Second
	endWithin   = 5 * time.Second
	// logTail bounds the part of a failed process's log that is shown, in bytes.
	logTail = 4 << 10
)

// A Process is a running command. Name is its name in the measurements. Admin is the address of its
// profiles, or "" if it serves none.
type Process struct {
	Name   string
	Admin  string
	cmd    *exec.Cmd
	log    string // the file with its output
	exited chan struct{}
}

// Start starts a command whose output goes to a file in dir.
func Start(dir, name, file string, args ...string) (*Process, error) {
	log, err := os.CreateTemp(dir, strings.ReplaceAll(name, "/", "-")+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has its own descriptor
	p := &Process{Name: name, cmd: exec.Command(file, args...), log: log.Name(), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WHENCE_") { // not the settings of the user's own Whence
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the wait for readiness reports a failed process
		close(p.exited)
	}()
	return p, nil
}

// Ready waits until an address answers GET /readyz with status 200.
func (p *Process) Ready(addr string) error {
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	return p.await(func() error {
		resp, err := client.Get("http://" + addr + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // only the status is needed
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	})
}

// Listening waits until an address accepts connections.
func (p *Process) Listening(addr string) error {
	return p.await(func() error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// await waits until check returns nil.
func (p *Process) await(check func() error) error {
	for deadline := time.Now().Add(readyWithin); ; {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended: %s", p.Name, p.Tail())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready after %v: %w; its log: %s", p.Name, readyWithin, err, p.Tail())
		}
	}
}

// Tail returns the end of the process's output.
func (p *Process) Tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-logTail):])
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Pid returns the id of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Stopped reports whether a signal has stopped the process.
func (p *Process) Stopped() bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid())) // a process that has ended is not stopped
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "T")
}

// Output returns the whole output of the process.
func (p *Process) Output() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// End ends the process: at once if it does not react to SIGTERM.
func (p *Process) End() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(endWithin):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// pids returns the ids of the process and of its descendants, such as nginx's workers.
func (p *Process) pids() []int {
	all := []int{p.Pid()}
	for i := 0; i < len(all); i++ {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		for _, file := range threads {
			b, _ := os.ReadFile(file) // a thread that has ended has no children
			for field := range strings.FieldsSeq(string(b)) {
				if pid, err := strconv.Atoi(field); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// CPU returns the CPU time that the process and its descendants have used so far, user and system
// together.
func (p *Process) CPU() (total time.Duration, err error) {
	select {
	case <-p.exited:
		return 0, fmt.Errorf("the process has ended: %s", p.Tail())
	default:
	}
	for _, pid := range p.pids() {
		t, e := CPUTime(pid)
		total += t
		err = errors.Join(err, e)
	}
	return total, err
}

// CPUTime reads the CPU clock of a process, or of this one if pid is 0, as clock_getcpuclockid(3)
// names it. The clock counts nanoseconds, while /proc/PID/stat counts hundredths of a second.
func CPUTime(pid int) (time.Duration, error) {
	const scheduler = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &t); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// RSS returns the resident memory of the process and its descendants, in bytes.
func (p *Process) RSS() (total int64, err error) {
	select {
	case <-p.exited:
		return 0, fmt.Errorf("the process has ended: %s", p.Tail())
	default:
	}
	for _, pid := range p.pids() {
		b, e := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		fields := strings.Fields(string(b))
		if e != nil || len(fields) < 2 {
			err = errors.Join(err, fmt.Errorf("memory of process %d: %w", pid, e))
			continue
		}
		pages, e := strconv.ParseInt(fields[1], 10, 64)
		err = errors.Join(err, e)
		total += pages * int64(os.Getpagesize())
	}
	return total, err
}

// RaiseFileLimit lets this process and its children open as many files as the system allows. Go
// raises only the limit of its own process.
func RaiseFileLimit() (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	l.Cur = l.Max
	return l.Cur, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}
