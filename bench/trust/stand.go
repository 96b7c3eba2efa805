package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/process"
	"github.com/whence-dev/whence/bench/wire"
)

// builds holds the built services of this checkout.
type builds struct {
	dir    string
	commit string
}

func build(ctx context.Context) (*builds, error) {
	dir, err := os.MkdirTemp("", "whence-trust-")
	if err != nil {
		return nil, err
	}
	b := &builds{dir: dir}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator),
		"github.com/whence-dev/whence/api-service", "github.com/whence-dev/whence/chat-service", "github.com/whence-dev/whence/llm-worker")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.close()
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	out, _ := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output() // a checkout without git has no commit
	b.commit = strings.TrimSpace(string(out))
	return b, nil
}

func (b *builds) close() { _ = os.RemoveAll(b.dir) }

// A service is one process of a row.
type service struct {
	*process.Process
	addr, metrics string
	links         string // "" for an api-service
	kind          string
	args          []string
}

// A stand holds the processes and the streams of one row.
type stand struct {
	builds  *builds
	streams int

	want    string // the text of every stream
	tokens  int    // per stream
	http    *http.Client
	workers []*service
	chats   []*service
	edges   []*service
	others  []*process.Process // such as Redis
	wires   []*wire.Wire       // to the services of layout.wired

	reading sync.WaitGroup
	begun   atomic.Int64 // streams with text
	over    atomic.Int64 // streams that have ended
	readers []*reader
	leave   context.CancelFunc

	key   string // the API key of the streams; "" means none
	asked int    // requests of ask
}

// A layout has the number of services of each kind, and their additional flags.
type layout struct {
	workers, chats, edges int
	worker, chat, edge    []string
	wired                 hop // the services of this hop are called through wires
}

// start starts services and returns when they answer requests.
func (s *stand) start(ctx context.Context, l layout) error {
	s.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}
	for i := range l.workers {
		args := append([]string{"--engine", "sim", "--pace", strconv.Itoa(pace), "--max-running", "8192", "--kv-tokens", "8388608", "--sim-context", "4096"}, l.worker...)
		if err := s.add(&s.workers, "llm-worker", i, args...); err != nil {
			return err
		}
	}
	workers, err := s.addrsOf(s.workers, l.wired == workerHop)
	if err != nil {
		return err
	}
	for i := range l.chats {
		if err := s.add(&s.chats, "chat-service", i, append([]string{"--worker", workers, "--max-streams", "20000"}, l.chat...)...); err != nil {
			return err
		}
	}
	chats, err := s.addrsOf(s.chats, l.wired == chatHop)
	if err != nil {
		return err
	}
	for i := range l.edges {
		if err := s.add(&s.edges, "api-service", i, append([]string{"--chat", chats, "--max-streams", "20000"}, l.edge...)...); err != nil {
			return err
		}
	}
	for _, e := range s.edges {
		if err := e.Ready(e.addr); err != nil {
			return err
		}
	}
	return s.usable(ctx)
}

// usable waits until every chat-service uses every worker.
func (s *stand) usable(ctx context.Context) error {
	return s.await(ctx, "every worker is used", func() bool {
		for _, c := range s.chats {
			if n, err := s.scrape(ctx, c, "whence_workers_healthy{"); err != nil || int(n) < len(s.workers) {
				return false
			}
		}
		return true
	})
}

// addrsOf returns the addresses at which services are called: if wired, those of wires to them.
func (s *stand) addrsOf(all []*service, wired bool) (string, error) {
	var addrs []string
	for _, p := range all {
		if !wired {
			addrs = append(addrs, p.addr)
			continue
		}
		w, err := wire.New(p.addr, p.links)
		if err != nil {
			return "", err
		}
		s.wires = append(s.wires, w)
		addrs = append(addrs, w.Addr())
	}
	return strings.Join(addrs, ","), nil
}

// add starts a service.
func (s *stand) add(to *[]*service, kind string, n int, args ...string) error {
	p := &service{kind: kind}
	for _, addr := range []*string{&p.addr, &p.metrics, &p.links} {
		free, err := process.FreeAddr()
		if err != nil {
			return err
		}
		*addr = free
	}
	p.args = append([]string{"--listen", p.addr, "--metrics-listen", p.metrics, "--name", kind + "/" + strconv.Itoa(n), "--log-level", "warn"}, args...)
	if kind == "api-service" {
		p.links = ""
	} else {
		p.args = append(p.args, "--link-port", p.links[strings.LastIndexByte(p.links, ':')+1:])
	}
	*to = append(*to, p) // before the start, so that end also stops a service that fails to start
	return s.launch(p)
}

// launch starts the process of a service, for the first time or again.
func (s *stand) launch(p *service) (err error) {
	if p.Process, err = process.Start(s.builds.dir, p.kind, filepath.Join(s.builds.dir, p.kind), p.args...); err != nil {
		return err
	}
	return p.Listening(p.addr)
}

// end stops all processes.
func (s *stand) end() {
	if s.leave != nil {
		s.leave()
	}
	s.reading.Wait()
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
	for _, all := range [][]*service{s.edges, s.chats, s.workers} {
		for _, p := range all {
			if p.Process == nil {
				continue // the process was never started
			}
			_ = p.Signal(syscall.SIGCONT) // so that a frozen process ends, too
			p.End()
		}
	}
	for _, p := range s.others {
		p.End()
	}
	for _, w := range s.wires {
		w.End()
	}
}

// fill opens the streams of a row and returns when all have text. Before that it reads one stream
// undisturbed, to get the expected text.
func (s *stand) fill(ctx context.Context, r row) error {
	s.tokens = r.tokens
	reading, leave := context.WithCancel(ctx)
	s.leave = leave
	first := &reader{}
	first.read(reading, s.client(s.key), s.edges[0].addr, s.tokens)
	if first.ending != completed {
		return fmt.Errorf("an undisturbed stream ends with %w", first.err)
	}
	s.want = first.text.String()
	if r.kept {
		return s.keep(reading, s.streams)
	}
	s.open(reading, s.streams)
	return s.await(ctx, "all streams have text", func() bool { return int(s.begun.Load()) >= s.streams })
}

// run reads one of the streams on a new goroutine.
func (s *stand) run(read func()) {
	s.reading.Go(func() {
		read()
		s.over.Add(1)
	})
}

// allRun returns an error if a stream has ended before the fault.
func (s *stand) allRun() error {
	if n := s.over.Load(); n > 0 {
		return fmt.Errorf("%d of %d streams have ended before the fault: the machine is too slow for this number", n, s.streams)
	}
	return nil
}

// open opens n streams at the first edge, in batches.
func (s *stand) open(ctx context.Context, n int) {
	for i := range n {
		r := &reader{id: "trust-" + strconv.Itoa(len(s.readers)), want: s.want, flows: func() { s.begun.Add(1) }}
		s.readers = append(s.readers, r)
		s.run(func() { r.read(ctx, s.client(s.key), s.edges[0].addr, s.tokens) })
		if i%50 == 49 {
			time.Sleep(50 * time.Millisecond) // keeps the steps of the engine spread out
		}
	}
}

// within bounds every wait of a row. A wait that takes longer counts as a hang.
const within = time.Minute

// await polls ok until it returns true, or fails after within.
func (s *stand) await(ctx context.Context, what string, ok func() bool) error {
	for until := time.Now().Add(within); !ok(); {
		if time.Now().After(until) {
			return fmt.Errorf("timeout after %v: %s", within, what)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// finish waits until every reader has an ending. Readers that hang are made to leave.
func (s *stand) finish() {
	ended := make(chan struct{})
	go func() {
		s.reading.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(within + time.Duration(s.tokens)*time.Second/pace):
		s.leave()
		<-ended
	}
}

// scrape returns the sum of the service's samples whose lines begin with a prefix.
func (s *stand) scrape(ctx context.Context, p *service, prefix string) (sum float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // a frozen process does not answer
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// alive returns the services that have not ended.
func (s *stand) alive() (all []*service) {
	for _, kind := range [][]*service{s.workers, s.chats, s.edges} {
		for _, p := range kind {
			select {
			case <-p.Exited():
			default:
				all = append(all, p)
			}
		}
	}
	return all
}

// redis starts a Redis server, and returns its URL.
func (s *stand) redis() (string, error) {
	addr, err := process.FreeAddr()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	p, err := process.Start(s.builds.dir, "redis", "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", s.builds.dir)
	if err != nil {
		return "", err
	}
	s.others = append(s.others, p)
	return "redis://" + addr + "/0", p.Listening(addr)
}
