// Package stand starts and ends the processes of a row: Whence's services, and the servers that they
// depend on.
package stand

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/process"
	"github.com/whence-dev/whence/bench/wire"
	"github.com/whence-dev/whence/internal/loopback"
)

// Pace is the number of tokens a second of a stream.
const Pace = 20

// Within bounds every wait. A wait that takes longer counts as a hang.
const Within = time.Minute

// A Hop names the services that are called through wires.
type Hop int

// The hops that can have wires.
const (
	NoHop Hop = iota
	WorkerHop
	ChatHop
)

// A Layout has the number of services of each kind, and their additional flags.
type Layout struct {
	Workers, Chats, Edges int
	Worker, Chat, Edge    []string
	OtherWorkers          [][]string // flags of further workers, instead of those of a simulated engine
	Wired                 Hop
	Etcd                  string // the URL of an etcd through which services find each other; "" for fixed addresses
}

// A Stand holds the processes of one row.
type Stand struct {
	Workers, Chats, Edges []*Service
	Others                []*process.Process // such as Redis
	Wires                 []*wire.Wire       // to the services of Layout.Wired

	builds *Builds
}

// New returns a stand without processes.
func New(b *Builds) *Stand { return &Stand{builds: b} }

// simulated are the flags of a worker with a simulated engine.
var simulated = []string{"--engine", "sim", "--pace", strconv.Itoa(Pace), "--max-running", "8192", "--kv-tokens", "8388608", "--sim-context", "4096"}

// Start starts services and returns when they answer requests.
func (s *Stand) Start(ctx context.Context, l Layout) error {
	each := make([][]string, l.Workers, l.Workers+len(l.OtherWorkers))
	for i := range each {
		each[i] = slices.Concat(simulated, l.Worker)
	}
	workers, err := s.all(&s.Workers, "llm-worker", append(each, l.OtherWorkers...), l.Wired == WorkerHop, l.Etcd)
	if err != nil {
		return err
	}
	each = slices.Repeat([][]string{append([]string{"--worker", workers, "--max-streams", "20000"}, l.Chat...)}, l.Chats)
	chats, err := s.all(&s.Chats, "chat-service", each, l.Wired == ChatHop, l.Etcd)
	if err != nil {
		return err
	}
	each = slices.Repeat([][]string{append([]string{"--chat", chats, "--max-streams", "20000"}, l.Edge...)}, l.Edges)
	if _, err := s.all(&s.Edges, "api-service", each, false, ""); err != nil {
		return err
	}
	for _, e := range s.Edges {
		if err := e.Ready(e.Addr); err != nil {
			return err
		}
	}
	return s.Usable(ctx)
}

// all starts the services of a kind, one for each list of flags. It returns the addresses at which
// they are called.
func (s *Stand) all(to *[]*Service, kind string, each [][]string, wired bool, etcd string) (string, error) {
	var addrs []string
	for _, args := range each {
		if etcd != "" {
			args = append([]string{"--register", etcd + "/" + kind}, args...)
		}
		p, err := s.add(to, kind, args...)
		if err != nil {
			return "", err
		}
		addr := p.Addr
		if wired {
			w, err := wire.New(p.Addr, p.links)
			if err != nil {
				return "", err
			}
			s.Wires = append(s.Wires, w)
			addr = w.Addr()
		}
		addrs = append(addrs, addr)
	}
	if etcd != "" {
		return etcd + "/" + kind, nil
	}
	return strings.Join(addrs, ","), nil
}

// add starts a service.
func (s *Stand) add(to *[]*Service, kind string, args ...string) (*Service, error) {
	p := &Service{kind: kind}
	for _, addr := range []*string{&p.Addr, &p.metrics, &p.links} {
		free, err := loopback.FreeAddr()
		if err != nil {
			return nil, err
		}
		*addr = free
	}
	name := kind + "/" + strconv.Itoa(len(*to))
	p.args = append([]string{"--listen", p.Addr, "--metrics-listen", p.metrics, "--name", name, "--log-level", "warn"}, args...)
	if kind == "api-service" {
		p.links = ""
	} else {
		p.args = append(p.args, "--link-port", p.links[strings.LastIndexByte(p.links, ':')+1:])
	}
	*to = append(*to, p) // before the start, so that End also stops a service that fails to start
	return p, s.Launch(p)
}

// Usable waits until every chat-service uses every worker.
func (s *Stand) Usable(ctx context.Context) error {
	return Await(ctx, "every worker is used", func() bool {
		for _, c := range s.Chats {
			if n, err := c.Scrape(ctx, "whence_workers_healthy{"); err != nil || int(n) < len(s.Workers) {
				return false
			}
		}
		return true
	})
}

// End stops all processes.
func (s *Stand) End() {
	for _, all := range [][]*Service{s.Edges, s.Chats, s.Workers} {
		for _, p := range all {
			if p.Process != nil { // the process was started
				end(p.Process)
			}
		}
	}
	for _, p := range s.Others {
		end(p)
	}
	for _, w := range s.Wires {
		w.End()
	}
}

// end ends a process, also if it is frozen.
func end(p *process.Process) {
	_ = p.Signal(syscall.SIGCONT) // fails if the process has ended
	p.End()
}

// Alive returns the services that have not ended.
func (s *Stand) Alive() (all []*Service) {
	for _, p := range slices.Concat(s.Workers, s.Chats, s.Edges) {
		if p.Process == nil {
			continue // the process was never started
		}
		select {
		case <-p.Exited():
		default:
			all = append(all, p)
		}
	}
	return all
}

// Dead reports whether a service has ended.
func (s *Stand) Dead(p *Service) bool { return !slices.Contains(s.Alive(), p) }

// Thaw lets frozen services continue.
func (s *Stand) Thaw() {
	for _, p := range s.Alive() {
		if p.Stopped() {
			_ = p.Signal(syscall.SIGCONT)
		}
	}
}

// Await polls ok until it returns true, or fails after Within.
func Await(ctx context.Context, what string, ok func() bool) error {
	for until := time.Now().Add(Within); !ok(); {
		if time.Now().After(until) {
			return fmt.Errorf("timeout after %v: %s", Within, what)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
