package chats

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/inspect"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) {
	kitexrpc.LogTo(io.Discard)
	leaktest.Main(m)
}

func (s *service) Models(context.Context, *chatv1.ModelsRequest) (*chatv1.ModelsResponse, error) {
	return &chatv1.ModelsResponse{Models: s.models}, nil
}

func (s *service) Workers(context.Context, *chatv1.WorkersRequest) (*chatv1.WorkersResponse, error) {
	return &chatv1.WorkersResponse{Workers: s.workers}, nil
}

func (s *service) Stop(ctx context.Context, req *chatv1.StopRequest) (*chatv1.StopResponse, error) {
	resp, err := s.hop.Stop(ctx, req.GetStream())
	if err != nil {
		return nil, err
	}
	return &chatv1.StopResponse{Stream: resp}, nil
}

// serve runs a chat-service until the test ends.
func serve(t *testing.T, name, addr string, prepare ...func(*service)) *service {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{addr: ln.Addr().String(), grpc: grpc.NewServer(), up: health.NewServer(), finish: make(chan struct{}), drain: make(chan struct{})}
	s.hop.Name, s.hop.Log, s.hop.Observer = name, slog.New(slog.DiscardHandler), &ledger.Ledger{}
	s.up.SetServingStatus(chatv1.Chat_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(s.grpc, s.up)
	chatv1.RegisterChatServer(s.grpc, s)
	inspect.Register(s.grpc, &s.hop, nil)
	for _, p := range prepare { // before it serves, because a client of an earlier test may still dial this port
		p(s)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.grpc.Serve(ln) })
	t.Cleanup(func() {
		s.grpc.Stop()
		serving.Wait()
	})
	return s
}

// gatherAll returns the fleet of services, which runs until the test ends.
func gatherAll(t *testing.T, services ...*service) *Fleet {
	t.Helper()
	f := still(t, services...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return f
}

// still returns the fleet of services, which neither discovers nor probes.
func still(t *testing.T, services ...*service) *Fleet {
	t.Helper()
	var addrs []string
	for _, s := range services {
		addrs = append(addrs, s.addr)
	}
	source, err := discover.Parse(strings.Join(addrs, ","))
	if err != nil {
		t.Fatal(err)
	}
	f, err := New("api", source, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// A live stream runs in a goroutine of its own.
type live struct {
	id    string
	stop  func(error)
	begun chan struct{}
	over  chan struct{}

	record *ledger.Record

	mu                    sync.Mutex
	text, thought, called string
	sum                   uint32 // of what deltas count
	restarted             int
	err                   error // of the stream, once it is over
}

func (l *live) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

var records ledger.Ledger

func open(t *testing.T, f *Fleet) *live { return ask(t, f, &chatv1.ChatRequest{}) }

func ask(t *testing.T, f *Fleet, req *chatv1.ChatRequest) *live {
	t.Helper()
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	l := &live{id: stream.NewID(), stop: ctl.Stop, begun: make(chan struct{}), over: make(chan struct{})}
	l.record = records.Open(l.id, "api", "client")
	ctx = ledger.With(ctx, l.record)
	go func() {
		defer close(l.over)
		defer ctl.Release()
		req.StreamId = l.id
		for out, err := range Engine(f.Start).Range(ctx, req) {
			if out.GetStarted() != nil {
				close(l.begun)
			}
			l.mu.Lock()
			if out.GetRestarted() != nil {
				l.text, l.thought, l.called, l.sum = "", "", "", 0
				l.restarted++
			}
			l.text += out.GetDelta().GetText()
			l.thought += out.GetDelta().GetReasoning()
			for _, call := range out.GetDelta().GetToolCalls() {
				if call.GetId() != "" {
					l.called += call.GetName() + ":"
				}
				l.called += call.GetArguments()
			}
			l.sum += out.GetDelta().GetTokens()
			l.err = err
			l.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		ctl.Stop(streamerr.New(streamerr.ClientGone, "the test is over"))
		<-l.over
	})
	return l
}

func (l *live) started(t *testing.T) *live {
	t.Helper()
	select {
	case <-l.begun:
	case <-l.over:
		t.Fatal(l.err)
	case <-time.After(polltest.Patience):
		t.Fatal("the stream did not begin")
	}
	return l
}

func TestStreamsAreSharedOut(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f := gatherAll(t, a, b)
	for range 10 {
		open(t, f).started(t)
	}
	if a.live.Load() != 5 || b.live.Load() != 5 {
		t.Error(a.live.Load(), b.live.Load())
	}
}

func TestDeadChatServiceIsAvoided(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f := gatherAll(t, a, b)
	for range 4 {
		open(t, f).started(t)
	}
	a.grpc.Stop()
	for range 6 { // at once: a stream that gets the dead one is retried on the other
		open(t, f).started(t)
	}
	polltest.Eventually(t, "the other one has all", func() bool { return b.live.Load() == 10 })
	polltest.Eventually(t, "it is known to be dead", func() bool { return len(f.well()) == 1 })
	again := serve(t, "chat-service/0", a.addr)
	polltest.Eventually(t, "it is known to be back", func() bool { return len(f.well()) == 2 })
	open(t, f).started(t)
	if again.live.Load() != 1 {
		t.Error("the chat-service with fewer streams does not get the next stream")
	}
}

func TestDrainingChatServiceGetsNoNewStreams(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f := gatherAll(t, a, b)
	a.refuse.Store(streamerr.New(streamerr.Draining, "it is shutting down"))
	a.up.Shutdown()
	for range 6 {
		open(t, f).started(t)
	}
	if b.live.Load() != 6 || a.asked.Load() > 1 {
		t.Error(b.live.Load(), a.asked.Load())
	}
	polltest.Eventually(t, "it is known to take no streams", func() bool { return len(f.well()) == 1 })
	b.refuse.Store(streamerr.New(streamerr.Overloaded, "it is full"))
	l := open(t, f)
	<-l.over
	if e := streamerr.As(l.err); e.Reason != streamerr.Overloaded {
		t.Error(e)
	}
}

func TestRefusalsOfTheRequestAreNotRetried(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f := gatherAll(t, a, b)
	for _, s := range []*service{a, b} {
		s.refuse.Store(streamerr.InvalidParam("messages", "bad"))
	}
	l := open(t, f)
	<-l.over
	if streamerr.As(l.err).Reason != streamerr.Invalid || a.asked.Load()+b.asked.Load() != 1 {
		t.Error(l.err, a.asked.Load(), b.asked.Load())
	}
}

func TestStopAndWhyFindTheirStream(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f := gatherAll(t, a, b)
	for _, hop := range []string{"chat-service/0", "chat-service/1"} {
		l := open(t, f).started(t)
		hops, err := f.Why(t.Context(), l.id)
		if err != nil || len(hops) != 1 || !strings.HasPrefix(hops[0].GetHop(), "chat-service/") {
			t.Error(hop, hops, err)
		}
		req := &chatv1.StopRequest{Stream: &streamv1.StopStreamRequest{StreamId: l.id}}
		if _, err := f.Stop(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		<-l.over
		if streamerr.As(l.err).Reason != streamerr.OperatorStop {
			t.Error(l.err)
		}
	}
	unknown := &chatv1.StopRequest{Stream: &streamv1.StopStreamRequest{StreamId: "nobody"}}
	if _, err := f.Stop(t.Context(), unknown); streamerr.As(err).Reason != streamerr.NotFound {
		t.Error(err)
	}
	b.grpc.Stop()
	if _, err := f.Stop(t.Context(), unknown); streamerr.As(err).Reason != streamerr.NotFound {
		t.Error(err)
	}
}

func TestListsMergeAllChatServices(t *testing.T) {
	worker := func(target string, streams uint32, said int64) *chatv1.Worker {
		return &chatv1.Worker{Target: target, Model: "m", Streams: streams, Said: &timestamppb.Timestamp{Seconds: said}}
	}
	a := serve(t, "chat-service/0", "127.0.0.1:0", func(s *service) {
		s.models = []*chatv1.Model{{Id: "one"}, {Id: "both", HealthyWorkers: 1}}
		s.workers = []*chatv1.Worker{worker("w:1", 3, 10), worker("w:2", 1, 10)}
	})
	b := serve(t, "chat-service/1", "127.0.0.1:0", func(s *service) {
		s.models = []*chatv1.Model{{Id: "both", HealthyWorkers: 2}}
		s.workers = []*chatv1.Worker{worker("w:1", 4, 11)}
	})
	f := gatherAll(t, a, b)
	models, err := f.Models(t.Context())
	if err != nil || len(models) != 2 || models[0].GetId() != "both" || models[0].GetHealthyWorkers() != 2 {
		t.Error(models, err)
	}
	workers, err := f.Workers(t.Context())
	if err != nil || len(workers) != 2 {
		t.Fatal(workers, err)
	}
	for _, w := range workers {
		if w.GetTarget() == "w:1" && (w.GetStreams() != 7 || w.GetSaid().GetSeconds() != 11) {
			t.Error(w)
		}
	}
	if err := f.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	a.grpc.Stop()
	if models, err := f.Models(t.Context()); err != nil || len(models) != 1 {
		t.Error(models, err)
	}
	if err := f.Ready(t.Context()); err != nil {
		t.Error("with one chat-service left:", err)
	}
	b.grpc.Stop()
	if _, err := f.Models(t.Context()); err == nil {
		t.Error("Models succeeds without a chat-service")
	}
	if err := f.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "chat-service cannot be reached") {
		t.Error(err)
	}
}

func TestChatServicesComeAndGo(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f := still(t, a, b)
	if err := f.set([]string{a.addr}); err != nil {
		t.Fatal(err)
	}
	l := open(t, f).started(t)
	if err := f.set([]string{b.addr}); err != nil {
		t.Fatal(err)
	}
	open(t, f).started(t)
	if a.live.Load() != 1 || b.live.Load() != 1 {
		t.Error(a.live.Load(), b.live.Load())
	}
	close(a.finish)
	<-l.over
	if l.err != nil {
		t.Error("the stream of a chat-service that is no longer listed:", l.err)
	}
	if err := f.set(nil); err != nil {
		t.Fatal(err)
	}
	none := open(t, f)
	<-none.over
	if streamerr.As(none.err).Reason != streamerr.Unavailable {
		t.Error(none.err)
	}
}

func TestContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*chatv1.ChatRequest, *chatv1.GenerateResponse] {
		a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
		ask := func(model string) func() *chatv1.ChatRequest {
			return func() *chatv1.ChatRequest { return &chatv1.ChatRequest{Model: model} }
		}
		return streamtest.Subject[*chatv1.ChatRequest, *chatv1.GenerateResponse]{
			Engine: gatherAll(t, a, b).Start, Short: ask("short"), Long: ask("long"), Bad: ask("none"),
			Live: func() int { return int(a.live.Load() + b.live.Load()) },
		}
	})
}
