// Package simulation plays seeded schedules of requests and faults against the whole path in one process and in
// virtual time: api-service, one or two chat-services, and two llm-workers.
//
// A Schedule is drawn from a seed. Play builds the services inside a bubble of testing/synctest, on in-memory
// transports, runs the schedule, and returns which invariants do not hold.
package simulation

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/hertz/pkg/network"
	"google.golang.org/grpc/health"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/api-service/edge/chats"
	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/models"
	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/e2e/simulation/client"
	memory "github.com/whence-dev/whence/e2e/simulation/network"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/drain"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/inspect"
	"github.com/whence-dev/whence/pkg/stream"
)

// Workers is how many llm-workers there are.
const Workers = 2

// The times of the services, far shorter than in production: virtual time is cheap, but each second of it has probes.
const (
	grace        = 300 * time.Millisecond
	writeTimeout = 1500 * time.Millisecond
	headersAfter = 300 * time.Millisecond
	migrateAfter = 400 * time.Millisecond
	chatStall    = 2 * time.Second
	edgeStall    = 3 * time.Second
)

// A process is one run of a service.
type process struct {
	name string
	host *memory.Host
	hop  *rpc.Hop
	dead atomic.Bool // it was killed
	// replaced is set when another run of the service is to take its place.
	replaced atomic.Bool

	order *drain.Order
	ended chan struct{} // closed when it has exited
}

// A world is the services and the network between them.
type world struct {
	schedule *Schedule
	net      *memory.Network
	journal  *journal
	running  sync.WaitGroup // processes

	edge     *process
	serve    func(context.Context, network.Conn) error
	requests requestCount // connections of clients
	operator *memory.Host

	mu      sync.Mutex // guards the following fields
	chats   []*chatService
	workers []*llmWorker
	all     []*process
	closing bool
}

func chatAddr(i int) string   { return fmt.Sprintf("chat-%d:1", i) }
func workerAddr(i int) string { return fmt.Sprintf("worker-%d:1", i) }

const edgeAddr = "edge:1"

func addresses(n int, addr func(int) string) string {
	var all []string
	for i := range n {
		all = append(all, addr(i))
	}
	return strings.Join(all, ",")
}

// start builds all services.
func start(s *Schedule) (*world, error) {
	w := &world{schedule: s, net: memory.New(s.Seed, s.MaxDelay), journal: &journal{began: time.Now()}, chats: make([]*chatService, s.Chats), workers: make([]*llmWorker, Workers)}
	w.operator = w.net.Host("operator:1")
	for i := range w.workers {
		w.startWorker(i)
	}
	for i := range w.chats {
		if err := w.startChat(i); err != nil {
			return nil, err
		}
	}
	return w, w.startEdge()
}

// process makes a process at an address.
func (w *world) process(name, addr string) (p *process, ctx context.Context, log *slog.Logger) {
	p = &process{name: name, host: w.net.Host(addr), ended: make(chan struct{})}
	ctx, p.order = drain.New(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, p)
	return p, ctx, slog.New(scribe{w.journal, p})
}

// drain is the first signal.
func (p *process) drain() { p.order.Begin(errSignal) }

// kill ends the process without a word.
func (p *process) kill() {
	p.dead.Store(true)
	p.host.Kill()
	p.order.Begin(errSignal)
	p.order.Hurry()
}

// A chatService is one run of chat-service.
type chatService struct {
	*process
	registry *models.Registry
}

// tiny is the model that all chat-services share. It is never changed.
var tiny = sync.OnceValues(func() (*chat.Model, error) { return chat.Load(whencetiny.FS(), whencetiny.Name, whencetiny.Owner) })

func (w *world) startChat(i int) error {
	name := "chat-service"
	if w.schedule.Chats > 1 {
		name = fmt.Sprintf("chat-service/%d", i)
	}
	p, ctx, log := w.process(name, chatAddr(i))
	p.hop = &rpc.Hop{Name: name, Live: stream.Set{Max: 100}, Log: log, Observer: &ledger.Ledger{}}
	up := health.NewServer()
	c := &chatService{process: p, registry: models.New(name, log, func(healthy bool) {
		inspect.SetHealthy(up, chatv1.Chat_ServiceDesc.ServiceName, healthy)
	})}
	c.registry.Connect = func(target string) (fleet.Conn, error) { return p.host.Dial(target), nil }
	c.registry.Load = func(fs.FS, string, string) (*chat.Model, error) {
		loaded, err := tiny()
		if err != nil {
			return nil, err
		}
		copied := *loaded
		return &copied, nil
	}
	card := models.Card{
		Workers: addresses(Workers, workerAddr), Migrations: server.DefaultMigrations, MigrateAfter: migrateAfter, FirstTokenMove: migrateAfter,
		HandoverAbove: server.DefaultHandoverAbove, Timers: rpc.Timers{FirstToken: chatStall, Stall: chatStall},
	}
	if w.schedule.Queue {
		card.QueueStreams, card.QueueTokens, card.QueueOutage = 16, server.DefaultQueueTokens, time.Second
	}
	if err := c.registry.Set([]models.Card{card}); err != nil {
		return err
	}
	s := server.New(p.hop, c.registry, up, c.registry.Generate)
	s.Register(p.host)
	w.mu.Lock()
	w.chats[i] = c
	w.mu.Unlock()
	w.running.Go(func() {
		defer close(p.ended)
		<-ctx.Done()
		s.Drain(ctx, grace)
		p.host.Stop()
		c.registry.Close()
	})
	return nil
}

func (w *world) startEdge() error {
	p, ctx, log := w.process(edge.DefaultName, edgeAddr)
	e, err := edge.New(edge.Config{
		Name: edge.DefaultName, Chat: addresses(w.schedule.Chats, chatAddr), MaxBody: 10000, MaxStreams: 100, ReadTimeout: 5 * time.Second,
		WriteTimeout: writeTimeout, HeadersAfter: headersAfter, Grace: grace, LeaveEvents: edge.DefaultLeaveEvents,
		Timers:  rpc.Timers{FirstToken: edgeStall, Stall: edgeStall},
		Connect: func(addr string) (chats.Conn, error) { return p.host.Dial(addr), nil },
	}, log)
	if err != nil {
		return err
	}
	p.hop, w.edge = e.Hop(), p
	if w.serve, err = e.Handler(client.Addr); err != nil {
		return err
	}
	finding, stop := context.WithCancel(context.WithoutCancel(ctx))
	var find sync.WaitGroup
	find.Go(func() { e.Find(finding) })
	w.running.Go(func() {
		defer close(p.ended)
		<-ctx.Done()
		e.Drain(ctx)
		w.requests.Wait()
		stop()
		find.Wait()
		_ = e.Close()
	})
	return nil
}

// visit sends a request of a client.
func (w *world) visit(r *client.Request) *client.Visit {
	return r.Visit(writeTimeout, func(conn *client.Conn) {
		w.requests.Add(1)
		defer w.requests.Done()
		_ = w.serve(conn.Context(), conn)
	})
}

// process returns a process that runs now.
func (w *world) chat(i int) *chatService {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chats[i]
}

func (w *world) worker(i int) *llmWorker {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.workers[i]
}

// stop ends all processes, front to back.
func (w *world) stop() {
	w.mu.Lock()
	w.closing = true
	chats, workers := w.chats, w.workers
	w.mu.Unlock()
	w.edge.drain()
	<-w.edge.ended
	for _, c := range chats {
		c.drain()
		<-c.ended
	}
	for _, k := range workers {
		k.drain()
		<-k.ended
	}
	w.running.Wait()
}

// A requestCount counts requests that run. Unlike a sync.WaitGroup it may be added to while Wait runs, because requests come until the edge has drained.
type requestCount struct {
	mu sync.Mutex
	n  int
}

func (f *requestCount) Add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n += n
}

func (f *requestCount) Done() { f.Add(-1) }

// Wait returns when there is no request. It looks every millisecond of virtual time.
func (f *requestCount) Wait() {
	for {
		f.mu.Lock()
		n := f.n
		f.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
