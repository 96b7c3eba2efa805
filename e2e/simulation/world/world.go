// Package world runs the services of a schedule in one process: api-service, one or two
// chat-services, and two llm-workers, on in-memory transports.
package world

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/e2e/simulation/client"
	memory "github.com/whence-dev/whence/e2e/simulation/network"
	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/pkg/drain"
	"github.com/whence-dev/whence/pkg/rpc"
)

// The times of the services, far shorter than in production: virtual time is cheap, but each second
// of it has probes.
const (
	Grace        = 300 * time.Millisecond // of a drain
	ReadTimeout  = 5 * time.Second
	WriteTimeout = 1500 * time.Millisecond
	HeadersAfter = 300 * time.Millisecond
	KeepAlive    = 700 * time.Millisecond
	// ClientTimeout is the time after which a client whose machine acknowledges nothing has vanished.
	ClientTimeout = 800 * time.Millisecond
	MigrateAfter  = 400 * time.Millisecond
	ChatStall     = 2 * time.Second
	EdgeStall     = 3 * time.Second
	// FaultLasts is the time for which an engine's fault affects streams.
	FaultLasts = 20 * time.Millisecond
	// WorkerStreams is the number of streams that a worker accepts.
	WorkerStreams = maxRunning + maxQueued
	maxRunning    = 2
	maxQueued     = 2
	// Deafest is the longest deafness of an engine.
	Deafest = 3 * time.Second
)

var errSignal = errors.New("a signal")

// A Process is one run of a service.
type Process struct {
	Name string
	Host *memory.Host
	Hop  *rpc.Hop
	// Began is when the process was started.
	Began time.Time

	dead     atomic.Bool
	replaced atomic.Bool
	order    *drain.Order
	ended    chan struct{} // closed when the process has exited

	mu      sync.Mutex // guards the following fields
	drained time.Time
	hurried time.Time
	killed  time.Time
}

// Dead reports whether the process was killed.
func (p *Process) Dead() bool { return p.dead.Load() }

// Killed returns when the process was killed, or zero.
func (p *Process) Killed() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// Drained returns when the process began to drain, or zero.
func (p *Process) Drained() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drained
}

// Hurried returns when the process got the second signal, or zero.
func (p *Process) Hurried() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hurried
}

// Drain sends the first signal.
func (p *Process) Drain() {
	p.mu.Lock()
	if p.drained.IsZero() {
		p.drained = time.Now()
	}
	p.mu.Unlock()
	p.order.Begin(errSignal)
}

// Hurry sends the second signal.
func (p *Process) Hurry() {
	p.Drain()
	p.mu.Lock()
	if p.hurried.IsZero() {
		p.hurried = time.Now()
	}
	p.mu.Unlock()
	p.order.Hurry()
}

// Kill kills the process.
func (p *Process) Kill() {
	p.mu.Lock()
	p.killed = time.Now()
	p.mu.Unlock()
	p.dead.Store(true)
	p.Host.Kill()
	p.order.Begin(errSignal)
	p.order.Hurry()
}

// Ended is closed when the process has exited.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Replace reports whether another run of the service may replace this one. It reports true only
// once.
func (p *Process) Replace() bool { return !p.replaced.Swap(true) }

// A World has the services and the network between them.
type World struct {
	Schedule *schedule.Schedule
	Net      *memory.Network
	Journal  *Journal
	Edge     *Process

	running  sync.WaitGroup     // processes, and the functions of Go
	server   *connection.Server // of clients
	secure   *tls.Config        // of clients; nil without TLS
	visits   int                // of clients; guarded by mu
	requests requestCount       // connections of clients

	mu      sync.Mutex // guards the following fields
	chats   []*Chat
	workers []*Worker
	all     []*Process
	closing bool
}

// ChatAddr returns the address of a chat-service.
func ChatAddr(i int) string { return fmt.Sprintf("chat-%d:1", i) }

// WorkerAddr returns the address of an llm-worker.
func WorkerAddr(i int) string { return fmt.Sprintf("worker-%d:1", i) }

// WorkerName returns the name of an llm-worker in paths.
func WorkerName(i int) string { return fmt.Sprintf("llm-worker/%d", i) }

// EdgeAddr is the address of api-service.
const EdgeAddr = "edge:1"

func addresses(n int, addr func(int) string) string {
	var all []string
	for i := range n {
		all = append(all, addr(i))
	}
	return strings.Join(all, ",")
}

// Start builds all services.
func Start(s *schedule.Schedule) (*World, error) {
	w := &World{
		Schedule: s, Net: memory.New(s.Seed, s.MaxDelay, s.Blocking), Journal: &Journal{began: time.Now()},
		chats: make([]*Chat, s.Chats), workers: make([]*Worker, schedule.Workers),
	}
	for i := range w.workers {
		w.StartWorker(i)
	}
	for i := range w.chats {
		if err := w.StartChat(i); err != nil {
			return nil, err
		}
	}
	return w, w.startEdge()
}

// process makes a process at an address.
func (w *World) process(name, addr string) (p *Process, ctx context.Context, log *slog.Logger) {
	p = &Process{Name: name, Host: w.Net.Host(addr, w.Schedule.Links == schedule.Beside && addr != EdgeAddr), Began: time.Now(), ended: make(chan struct{})}
	ctx, p.order = drain.New(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, p)
	return p, ctx, slog.New(scribe{w.Journal, p})
}

// Processes returns all runs of all services.
func (w *World) Processes() []*Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// At returns the process at a host.
func (w *World) At(h *memory.Host) *Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.all {
		if p.Host == h {
			return p
		}
	}
	return nil
}

// Chats returns the last run of each chat-service.
func (w *World) Chats() []*Chat {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.chats)
}

// Workers returns the last run of each llm-worker.
func (w *World) Workers() []*Worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.workers)
}

// upgrading returns the log of connections whose caller looks for links beside the callee's gRPC, or nil
// if the callers do not.
func (w *World) upgrading(log *slog.Logger) *slog.Logger {
	if w.Schedule.Links != schedule.Only {
		return log
	}
	return nil
}

// Visit sends a request of a client to api-service, on a connection of its own.
func (w *World) Visit(r *client.Request) *client.Visit {
	return w.connect(r.Window, w.secure, r.HTTP2).Visit(r)
}

// Stranger has a stranger talk to api-service, and returns the statuses of the answers.
func (w *World) Stranger(s *schedule.Stranger) (answers []int) {
	secure := w.secure
	if s.Plain {
		secure = nil
	}
	return w.connect(64<<10, secure, false).Say(schedule.Strange[s.Which].Text, s.Piece)
}

// connect opens a client's connection to api-service.
func (w *World) connect(window int, secure *tls.Config, http2 bool) *client.Line {
	w.requests.add()
	w.mu.Lock()
	w.visits++
	name := fmt.Sprintf("client-%d:1", w.visits)
	w.mu.Unlock()
	near, far := w.Net.Connect(name, w.Edge.Host, window)
	go func() {
		defer w.requests.done()
		w.server.ServeStream(far)
	}()
	return client.NewLine(name, near, secure, http2)
}

// Requests returns the number of clients' connections to api-service.
func (w *World) Requests() int { return w.requests.count() }

// Go runs f on a goroutine that Stop waits for.
func (w *World) Go(f func()) { w.running.Go(f) }

// Closing reports whether Stop was called.
func (w *World) Closing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closing
}

// Stop ends all processes, front to back.
func (w *World) Stop() {
	w.mu.Lock()
	w.closing = true
	chats, workers := w.chats, w.workers
	w.mu.Unlock()
	end := func(p *Process) {
		p.order.Begin(errSignal)
		<-p.ended
	}
	end(w.Edge)
	for _, c := range chats {
		end(c.Process)
	}
	for _, k := range workers {
		end(k.Process)
	}
	w.running.Wait()
}

// A requestCount counts running requests. Unlike a sync.WaitGroup it may grow while wait runs,
// because requests arrive until api-service has drained. The zero value is ready to use.
type requestCount struct {
	mu   sync.Mutex // guards the following fields
	n    int
	none chan struct{} // closed when n falls to 0; nil without a waiter
}

func (f *requestCount) add() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
}

func (f *requestCount) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 && f.none != nil {
		close(f.none)
		f.none = nil
	}
}

func (f *requestCount) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// wait returns when no request runs.
func (f *requestCount) wait() {
	f.mu.Lock()
	if f.n == 0 {
		f.mu.Unlock()
		return
	}
	if f.none == nil {
		f.none = make(chan struct{})
	}
	none := f.none
	f.mu.Unlock()
	<-none
}
