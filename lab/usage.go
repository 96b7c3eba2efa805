package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Answers waits until an address of the process answers GET /readyz with status 200.
func (p *Process) Answers(ctx context.Context, addr string) error {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return p.Until(ctx, "/readyz says ok", func() bool {
		resp, err := client.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// Accepts waits until an address of the process accepts connections.
func (p *Process) Accepts(ctx context.Context, addr string) error {
	return p.Until(ctx, addr+" accepts connections", func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
}

// Until polls ok until it returns true. It fails early if the process ends.
func (p *Process) Until(ctx context.Context, what string, ok func() bool) error {
	done := false
	err := Await(ctx, what, func() bool { done = ok(); return done || p.Ended() })
	if err == nil && !done {
		err = errors.New("it has ended")
	}
	if err != nil {
		return fmt.Errorf("%s is not ready: %w; its log: %s", p.Name, err, p.Tail())
	}
	return nil
}

// Frozen reports whether a signal has stopped the process.
func (r *Run) Frozen() bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.Pid())) // a process that has ended is not frozen
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "T")
}

// pids returns the ids of the process and of its descendants, such as nginx's workers.
func (r *Run) pids() []int {
	all := []int{r.Pid()}
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
	if p.Ended() {
		return 0, fmt.Errorf("%s has ended: %s", p.Name, p.Tail())
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
	if p.Ended() {
		return 0, fmt.Errorf("%s has ended: %s", p.Name, p.Tail())
	}
	for _, pid := range p.pids() {
		b, e := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		fields := strings.Fields(string(b))
		if e != nil || len(fields) < 2 {
			err = errors.Join(err, fmt.Errorf("memory of process %d: %q, %v", pid, b, e)) //nolint:errorlint // e may be nil
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
