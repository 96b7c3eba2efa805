package e2e

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// descriptors returns the number of open files of a process.
func (p *process) descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// cpuTime returns the CPU time that a process has used.
func (p *process) cpuTime(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(after)
	var ticks int
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// TestServiceOutOfDescriptorsKeepsItsStreams opens more connections to each service than it may
// have open files. Its streams go on, it does not spin, and it serves new requests when the
// connections are closed.
func TestServiceOutOfDescriptorsKeepsItsStreams(t *testing.T) {
	t.Parallel()
	const spare = 10
	w := run(t, separate, flags{worker: []string{"--pace", "100"}})
	want := w.answer(t, greedy(long))
	for name, addr := range map[string]string{apiService: w.api, chatService: w.chat, llmWorker: w.worker} {
		t.Run(name, func(t *testing.T) {
			p := w.processes[name]
			stream := w.open(t, greedy(long)).begun(t)
			limit := uint64(p.descriptors(t) + spare)
			var before unix.Rlimit
			if err := unix.Prlimit(p.cmd.Process.Pid, syscall.RLIMIT_NOFILE, nil, &before); err != nil {
				t.Fatal(err)
			}
			scarce := unix.Rlimit{Cur: limit, Max: before.Max}
			if err := unix.Prlimit(p.cmd.Process.Pid, syscall.RLIMIT_NOFILE, &scarce, nil); err != nil {
				t.Fatal(err)
			}
			var crowd []net.Conn
			for range 3 * spare {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				crowd = append(crowd, conn)
			}
			eventually(t, name+" has no descriptors left", func() bool { return p.descriptors(t) >= int(limit) })
			used, since := p.cpuTime(t), time.Now()
			if got := stream.completed(t); got != want {
				t.Errorf("the stream is %q", got)
			}
			if share := (p.cpuTime(t) - used).Seconds() / time.Since(since).Seconds(); share > 0.5 {
				t.Errorf("%s uses %.0f %% of a core while it cannot accept connections", name, 100*share)
			}
			for _, conn := range crowd {
				_ = conn.Close()
			}
			eventually(t, name+" has closed its side", func() bool { return p.descriptors(t) < int(limit)-spare/2 })
			w.works(t)
		})
	}
}

// TestFullDiskHarmsNoStream: usage records and spans cannot be written. Each service says so in its
// log, and streams go on.
func TestFullDiskHarmsNoStream(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{all: []string{"--usage-file", "/dev/full", "--trace-file", "/dev/full", "--trace-ratio", "1"}})
	want := w.answer(t, greedy(short))
	for range 3 {
		if got := w.open(t, greedy(short)).completed(t); got != want {
			t.Errorf("the stream is %q", got)
		}
	}
	full := func(r record) bool { return strings.Contains(r.Err, "no space left") }
	w.processes[apiService].logged(t, "the usage records that are lost", func(r record) bool { return r.Msg == "usage records are lost" && full(r) })
	for _, p := range w.all() {
		p.logged(t, "the spans that are lost", func(r record) bool { return r.Msg == "spans could not be exported" && full(r) })
	}
	w.works(t)
}
