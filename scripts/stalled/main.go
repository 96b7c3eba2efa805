// Command stalled runs a command on a machine that stands still again and again: it stops all
// processes of the command together for 150 to 450 ms, every 2 to 5 seconds, beside busy loops.
// Tests that pass here do not depend on the speed of the machine.
//
//	stalled [--loops N] COMMAND ARGUMENT...
//
// Its status is that of the command. It needs Linux.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

func main() {
	loops := flag.Int("loops", 2, "number of busy `loops` beside the command")
	flag.Parse()
	status, err := run(*loops, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "stalled:", err)
	}
	os.Exit(status)
}

// run runs the command, and returns its status.
func run(loops int, args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New("no command: stalled [--loops N] COMMAND ARGUMENT")
	}
	for range loops {
		go func() {
			for { //nolint:staticcheck // it is there to use a CPU
			}
		}()
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the status is in ProcessState
		close(ended)
	}()
	stalls := 0
	for {
		select {
		case <-ended:
			fmt.Fprintf(os.Stderr, "stalled: all processes of the command were stopped %d times\n", stalls)
			return cmd.ProcessState.ExitCode(), nil
		case s := <-interrupts:
			if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return 1, err
			}
		case <-time.After(2*time.Second + rand.N(3*time.Second)):
			stall(cmd.Process.Pid, 150*time.Millisecond+rand.N(300*time.Millisecond))
			stalls++
		}
	}
}

// stall stops a process and its descendants for a duration. It leaves those alone that are stopped
// already: a test has frozen them.
func stall(root int, lasts time.Duration) {
	var stopped []int
	for { // until no process is left that was started meanwhile
		running := slices.DeleteFunc(descendants(root), func(pid int) bool { return slices.Contains(stopped, pid) })
		if len(running) == 0 {
			break
		}
		for _, pid := range running {
			if syscall.Kill(pid, syscall.SIGSTOP) == nil { // a process that has ended needs no stop
				stopped = append(stopped, pid)
			}
		}
	}
	time.Sleep(lasts)
	for _, pid := range slices.Backward(stopped) { // parents last: they find their children running
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// descendants returns the running processes of the tree below root, and root.
func descendants(root int) []int {
	children := map[int][]int{}
	running := map[int]bool{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the state, the parent
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || len(fields) < 2 {
			continue
		}
		parent, err := strconv.Atoi(string(fields[1]))
		if err != nil {
			continue
		}
		children[parent] = append(children[parent], pid)
		running[pid] = !bytes.ContainsAny(fields[0], "TtZX")
	}
	var all []int
	for next := []int{root}; len(next) > 0; next = next[1:] {
		if running[next[0]] {
			all = append(all, next[0])
		}
		next = append(next, children[next[0]]...)
	}
	return all
}
