package route

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/inspect"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A service is a fake behind a real socket.
type service struct {
	workerv1.UnimplementedWorkerServer
	fake *fake
	info *llmv1.WorkerInfo
	// other is the WorkerInfo that it reports from then on.
	other  atomic.Pointer[llmv1.WorkerInfo]
	probes atomic.Int64
	hop    rpc.Hop
	grpc   *grpc.Server
	up     *health.Server
	addr   string
}

func (s *service) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	return rpc.Serve(&s.hop, st, methods.Worker, stream.Push(s.fake.generate))
}

func (s *service) Info(context.Context, *workerv1.InfoRequest) (*llmv1.WorkerInfo, error) {
	s.probes.Add(1)
	if other := s.other.Load(); other != nil {
		return other, nil
	}
	return s.info, nil
}

// serve runs a worker until the test ends. An empty addr means any port.
func serve(t *testing.T, f *fake, addr string) *service {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{fake: f, info: info(f.name), grpc: grpc.NewServer(), up: health.NewServer(), addr: ln.Addr().String()}
	s.hop.Name, s.hop.Log, s.hop.Observer = f.name, slog.New(slog.DiscardHandler), &ledger.Ledger{}
	s.up.SetServingStatus(workerv1.Worker_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(s.grpc, s.up)
	workerv1.RegisterWorkerServer(s.grpc, s)
	inspect.Register(s.grpc, &s.hop, nil)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.grpc.Serve(ln) })
	t.Cleanup(func() {
		s.grpc.Stop()
		wg.Wait()
	})
	return s
}

// dialAll returns a watched pool of services, which starts healthy. healthy reports whether the
// pool still is.
func dialAll(t *testing.T, opts Options, log *logtest.Log, services ...*service) (p *Pool, healthy func() bool) {
	t.Helper()
	var targets []string
	for _, s := range services {
		targets = append(targets, s.addr)
	}
	opts.Self, opts.Log = "chat", slog.New(slog.NewTextHandler(log, nil))
	if opts.Check == nil {
		opts.Check = func(*llmv1.WorkerInfo) error { return nil }
	}
	p = New(opts)
	if err := p.Set(targets...); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var last bool
	healthy = func() bool {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		p.Watch(ctx, func(now bool) {
			mu.Lock()
			defer mu.Unlock()
			last = now
		})
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		p.Close()
	})
	polltest.Eventually(t, "the pool is healthy", healthy)
	return p, healthy
}

// usable counts the workers that may be chosen.
func usable(p *Pool) (n int) {
	for _, w := range p.Members() {
		if w.Info() != nil && good(w) {
			n++
		}
	}
	return n
}

func TestStreamSurvivesItsWorkersProcess(t *testing.T) {
	a, b := serve(t, &fake{name: "w/0"}, ""), serve(t, &fake{name: "w/1"}, "")
	var log logtest.Log
	p, healthy := dialAll(t, Options{Policy: inOrder, Migrations: 1}, &log, a, b)
	polltest.Eventually(t, "both are healthy", func() bool { return usable(p) == 2 })
	want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w"}), ask(40), nil)

	var kept ledger.Ledger
	record := kept.Open("id", "chat", "")
	got := read(ledger.With(stream.WithID(t.Context(), "id"), record), p, ask(40), func(tokens int) {
		if tokens == 10 {
			a.grpc.Stop()
		}
	})
	got.same(t, want)
	moves := record.Proto().GetMoves()
	if len(moves) != 1 || moves[0].GetFrom() != "w/0" || moves[0].GetTo() != "w/1" || moves[0].GetReason() != streamv1.Reason_REASON_PEER_LOST || moves[0].GetTokens() < 10 {
		t.Error(moves)
	}
	// the first by the fake, the second by its hop
	if path := strings.Join(got.end.GetPath(), " > "); path != "engine > w/1 > w/1" {
		t.Error(path)
	}
	polltest.Eventually(t, "the pool has one worker left", func() bool { return usable(p) == 1 })
	if !healthy() {
		t.Error("one worker is left, and the pool is not healthy")
	}
	b.grpc.Stop()
	polltest.Eventually(t, "the pool is not healthy", func() bool { return !healthy() })
	again := serve(t, &fake{name: "w/0"}, a.addr)
	polltest.Eventually(t, "the pool is healthy again", healthy)
	if got := read(t.Context(), p, ask(40), nil); got.err != nil || len(again.fake.asked) != 1 {
		t.Error(got.err)
	}
}

func TestNewStreamsGoToWorkersThatTakeThem(t *testing.T) {
	a, b := serve(t, &fake{name: "w/0"}, ""), serve(t, &fake{name: "w/1"}, "")
	var log logtest.Log
	p, _ := dialAll(t, Options{Policy: inOrder}, &log, a, b)
	polltest.Eventually(t, "both are healthy", func() bool { return usable(p) == 2 })
	a.up.Shutdown() // drains
	polltest.Eventually(t, "one worker is left", func() bool { return usable(p) == 1 })
	if got := read(t.Context(), p, ask(3), nil); got.err != nil || len(a.fake.asked) != 0 || len(b.fake.asked) != 1 {
		t.Error(got.err, len(a.fake.asked), len(b.fake.asked))
	}
	if log.Count("worker is healthy") != 2 || log.Count("worker is not healthy") != 1 {
		t.Error(log.String())
	}
}

func TestLoadIncludesOtherCallers(t *testing.T) {
	a := serve(t, &fake{name: "w/0"}, "")
	a.info.Load = &llmv1.Load{Running: 4, Queued: 3}
	var log logtest.Log
	p, _ := dialAll(t, Options{}, &log, a)
	polltest.Eventually(t, "7 streams are others'", func() bool { return p.Members()[0].Load() == 7 })
	taken := take(p, ask(1))
	if p.Members()[0].Load() != 8 {
		t.Error(p.Members()[0].Load())
	}
	p.Members()[0].Probe() // probe again: one of the 7 is now ours
	polltest.Eventually(t, "6 streams are others'", func() bool { return p.Members()[0].Load() == 7 })
	taken.abandon()
}

func TestSecondWorkerOfANameIsRefused(t *testing.T) {
	a, b := serve(t, &fake{name: "w/0"}, ""), serve(t, &fake{name: "w/0"}, "")
	var log logtest.Log
	p, _ := dialAll(t, Options{}, &log, a, b)
	polltest.Eventually(t, "the log names both", func() bool { return log.Count("are both called w/0: give each its own --name") == 1 })
	if usable(p) != 1 {
		t.Error("both are used")
	}
	first, second := a, 1
	if p.Members()[1].Info() != nil {
		first, second = b, 0
	}
	first.grpc.Stop()
	polltest.Eventually(t, "the name is free", func() bool { return p.Members()[second].Info() != nil })
}

func TestWorkerThatDoesNotFitIsRefusedOnce(t *testing.T) {
	a, b := serve(t, &fake{name: "w/0"}, ""), serve(t, &fake{name: "w/1"}, "")
	var log logtest.Log
	p, _ := dialAll(t, Options{Check: func(info *llmv1.WorkerInfo) error {
		if info.GetInstance() == "w/1" {
			return errors.New("another model")
		}
		return nil
	}}, &log, a, b)
	polltest.Eventually(t, "the worker is refused", func() bool { return log.Count("another model") == 1 })
	p.Members()[1].Probe()
	asked := b.probes.Load()
	polltest.Eventually(t, "the worker was probed again", func() bool { return b.probes.Load() > asked })
	if usable(p) != 1 || log.Count("another model") != 1 {
		t.Error(log.String())
	}
}

func TestWhyAsksTheWorkersOfAStream(t *testing.T) {
	names := []string{"w/0", "w/1", "w/2"}
	var services []*service
	for _, name := range names {
		services = append(services, serve(t, &fake{name: name}, ""))
	}
	var log logtest.Log
	p, _ := dialAll(t, Options{}, &log, services...)
	polltest.Eventually(t, "all are healthy", func() bool { return usable(p) == 3 })
	for _, i := range []int{0, 2} {
		ledger.At(&services[i].hop).Open("id", names[i], "").End(streamerr.Completed, nil, "")
	}
	hops := func(id string, known *streamv1.Record) string {
		var all []string
		for _, r := range p.Why(t.Context(), id, known) {
			all = append(all, r.GetHop())
		}
		return strings.Join(all, " ")
	}
	move := func(from, to string) *streamv1.Move { return &streamv1.Move{From: from, To: to} }
	for _, c := range []struct {
		id, want string
		known    *streamv1.Record
	}{
		{"id", "w/0 w/2", nil},
		{"id", "w/2 w/0", &streamv1.Record{Moves: []*streamv1.Move{move("w/2", "w/1"), move("w/1", "w/0")}}},
		{"id", "w/2 w/0", &streamv1.Record{Moves: []*streamv1.Move{move("w/2", "w/1")}}}, // w/0 from another chat-service
		{"id", "w/2 w/0", &streamv1.Record{Workers: []string{"w/2"}}},
		{"id", "w/0 w/2", &streamv1.Record{Moves: []*streamv1.Move{move("gone/0", "gone/1")}}},
		{"nobody's", "", nil},
	} {
		if got := hops(c.id, c.known); got != c.want {
			t.Errorf("%v: %q, want %q", c.known, got, c.want)
		}
	}
	ledger.At(&services[0].hop).Open("here", "w/0", "")
	if got := hops("here", &streamv1.Record{}); got != "w/0" {
		t.Errorf("a stream that never moved: %q", got)
	}
	services[1].grpc.Stop()
	if got := hops("id", nil); got != "w/0 w/2" {
		t.Errorf("without one of them: %q", got)
	}
}
