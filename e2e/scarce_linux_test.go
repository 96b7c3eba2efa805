package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whence-dev/whence/internal/polltest"
)

// descriptors returns the number of open files of a process.
func (p *process) descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// limit sets the limit of file descriptors of a process.
func (p *process) limit(t *testing.T, descriptors int) {
	t.Helper()
	var r unix.Rlimit
	err := unix.Prlimit(p.Pid(), syscall.RLIMIT_NOFILE, nil, &r)
	if err == nil {
		r.Cur = uint64(descriptors)
		err = unix.Prlimit(p.Pid(), syscall.RLIMIT_NOFILE, &r, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// throng opens connections that send nothing.
func throng(t *testing.T, addr string, n int) (leave func()) {
	t.Helper()
	var all []net.Conn
	for range n {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	return func() {
		for _, conn := range all {
			_ = conn.Close()
		}
	}
}

// said returns how often a process has logged a message.
func (p *process) said(message string) int {
	all := p.Log.All()
	n := 0
	for _, line := range all {
		n += strings.Count(line, message)
	}
	return n
}

const (
	outOfDescriptors = "the process is out of file descriptors"
	descriptorsFree  = "file descriptors are free again"
)

// TestServiceOutOfDescriptorsKeepsItsStreams opens more connections to each service than it may
// have open files. Its streams go on, it does not spin, it says so once, its pages answer, and it
// serves new requests when the connections are closed.
func TestServiceOutOfDescriptorsKeepsItsStreams(t *testing.T) {
	t.Parallel()
	const spare = 40
	w := run(t, separate, flags{worker: []string{"--pace", "100"}, all: measured})
	want := w.answer(t, greedy(long))
	for name, addr := range map[string]string{apiService: w.api, chatService: w.chat, llmWorker: w.worker} {
		t.Run(name, func(t *testing.T) {
			p := w.processes[name]
			stream := w.open(t, greedy(long)).begun(t)
			p.limit(t, p.descriptors(t)+spare)
			leave := throng(t, addr, 3*spare)
			defer leave()
			polltest.Eventually(t, name+" says that it has no descriptors left", func() bool { return p.said(outOfDescriptors) == 1 })
			used, since := p.cpu(t), time.Now()
			if got := stream.completed(t); got != want {
				t.Errorf("the stream is %q", got)
			}
			if share := (p.cpu(t) - used).Seconds() / time.Since(since).Seconds(); share > 0.5 {
				t.Errorf("%s uses %.0f %% of a core while it cannot accept connections", name, 100*share)
			}
			polltest.Eventually(t, "the metrics count refused connections", func() bool { return p.scrape(t).Sum("whence_descriptors_refused_total") > 0 })
			if name == apiService {
				w.answersProbesOnly(t)
			}
			w.works(t) // over the connections that are open
			leave()
			polltest.Eventually(t, name+" says that it has descriptors again", func() bool { return p.said(descriptorsFree) == 1 })
			if n := p.said(outOfDescriptors); n != 1 {
				t.Errorf("%s has said %d times that it has no descriptors left", name, n)
			}
			if r := w.readiness(); r != http.StatusOK {
				t.Errorf("/readyz has status %d when there are descriptors again", r)
			}
			w.works(t)
		})
	}
}

// answersProbesOnly checks the answers of api-service on new connections while it is out of
// descriptors.
func (w *whence) answersProbesOnly(t *testing.T) {
	t.Helper()
	fresh := *w
	fresh.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]struct {
		status int
		body   string
	}{"/healthz": {http.StatusOK, "ok\n"}, "/readyz": {http.StatusServiceUnavailable, "out of file descriptors\n"}} {
		resp, err := fresh.http.Get(w.url(path))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if r := readAll(t, resp); r.status != want.status || string(r.body) != want.body {
			t.Errorf("%s has status %d: %s", path, r.status, r.body)
		}
	}
	r := fresh.post(t, greedy(short))
	if e := r.completion(t).Error; r.status != http.StatusTooManyRequests || e == nil || e.reason() != "overloaded" || r.header.Get("Retry-After") == "" {
		t.Errorf("a request on a new connection has status %d: %s", r.status, r.body)
	}
}

// outOfDescriptors makes a request on a new connection when api-service has only its reserve of
// descriptors left.
func (s *scene) outOfDescriptors() *refusal {
	s.t.Helper()
	p := s.procs[api0]
	defer p.limit(s.t, 1024)
	const spare = 40
	limit := p.descriptors(s.t) + spare
	s.fault(func() { p.limit(s.t, limit) })
	// The last quarter is the reserve. Idle connections take what is below it, and up to seven
	// descriptors that become free meanwhile; otherwise they take seven of the reserve.
	for range spare - limit/4 + 7 {
		conn, err := net.Dial("tcp", s.api)
		if err != nil {
			s.t.Fatal(err)
		}
		defer conn.Close()
	}
	fresh := *s.whence
	fresh.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := fresh.send(s.t, greedy(short), s.id)
	if err != nil {
		s.t.Fatal(err)
	}
	return readAll(s.t, resp).completion(s.t).Error
}

// TestLimitOfConnectionsAboveThatOfDescriptors: api-service raises its limit to the hard limit, and
// names both figures if it serves fewer connections than it is told to.
func TestLimitOfConnectionsAboveThatOfDescriptors(t *testing.T) {
	t.Parallel()
	for hard, warns := range map[int]bool{512: true, 4096: false} {
		p := startFile(t, "whence", "/bin/sh", "-c", fmt.Sprintf(`ulimit -S -n 128 && ulimit -H -n %d && exec "$@"`, hard), "sh",
			binary(t, "whence"), "api", "--listen", "127.0.0.1:0", "--log-json", "--max-connections", "1000")
		p.listening(t)
		var r unix.Rlimit
		if err := unix.Prlimit(p.Pid(), syscall.RLIMIT_NOFILE, nil, &r); err != nil {
			t.Fatal(err)
		}
		if r.Cur < uint64(hard)-1 || r.Max != uint64(hard) { // Go leaves one, so that a child can tell the two limits apart
			t.Errorf("the limits are %+v; want %d", r, hard)
		}
		said := fmt.Sprintf(`"max_connections":1000,"limit":%d,"allowed":%d`, r.Cur, r.Cur-64)
		if warns {
			p.await(t, p.Log, "the limits in the log", func(line string) bool { return strings.Contains(line, said) })
		} else if p.said("--max-connections is more") > 0 {
			t.Errorf("a warning with a limit of %d", hard)
		}
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
