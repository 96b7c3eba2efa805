package accounts

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/whence-dev/whence/chat-service/admit"
	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	contextLength = 2048
	pace          = 100 // tokens per second
)

// A path is an edge without HTTP, a chat-service, and workers of both kinds.
type path struct {
	edge, middle *rpc.Hop
	chat         chat.Engine // behind the edge
	model        *chat.Model
	pool         *route.Pool
	workers      []*worker
	scripts      scripts
}

// A worker serves a fake engine.
type worker struct {
	workerv1.UnimplementedWorkerServer
	hop    *rpc.Hop
	engine func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error]
}

func (w *worker) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	return rpc.Serve(w.hop, st, methods.Worker, w.engine)
}

type chatServer struct {
	chatv1.UnimplementedChatServer
	hop    *rpc.Hop
	engine chat.Engine
}

func (c *chatServer) Generate(st grpc.BidiStreamingServer[chatv1.GenerateRequest, chatv1.GenerateResponse]) error {
	return rpc.Serve(c.hop, st, methods.Chat, c.engine)
}

func newPath(t *testing.T, m *metrics.Metrics) *path {
	t.Helper()
	hop := func(name string, op metrics.Operation) *rpc.Hop {
		return &rpc.Hop{Name: name, Log: slog.New(slog.DiscardHandler), Observer: &ledger.Ledger{Metrics: m.Hop(name, op)}}
	}
	model, err := chat.Load(whencetiny.FS(), whencetiny.Name, whencetiny.Owner)
	if err != nil {
		t.Fatal(err)
	}
	p := &path{edge: hop("api-service", metrics.Chat), middle: hop("chat-service", metrics.Chat), model: model, scripts: scripts{byID: map[string]*script{}}}

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	p.pool = route.New(route.Options{Self: p.middle.Name, Migrations: 9, MigrateAfter: 10 * time.Second, Log: p.middle.Log})
	queue := admit.New(admit.Options{MaxStreams: 100, MaxTokens: 1 << 20, Room: p.pool.Room, Outage: time.Second})
	running.Go(func() { queue.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		p.pool.Close()
	})
	var members []*fleet.Worker
	for i := range 4 {
		name := "llm-worker/" + string(rune('0'+i))
		w := &worker{hop: hop(name, metrics.TextCompletion)}
		info := &llmv1.WorkerInfo{
			Instance: name, Model: model.Name, ContextLength: contextLength, VocabSize: uint32(model.Tokenizer.VocabSize()), Load: &llmv1.Load{MaxRunning: 1000},
			Capabilities: &llmv1.Capabilities{Sampling: []string{"max_tokens", "seed", "stop_token_ids"}},
		}
		if i%2 == 0 {
			info.Continues = true
			loop := batch.New(&fakeModel{scripts: &p.scripts, running: map[uint64]*sequence{}}, batch.Options{Model: model.Name, Pace: pace, MaxRunning: 1000})
			running.Go(func() { loop.Run(ctx) })
			w.engine = loop.Generate
		} else {
			info.Resumes = true
			w.engine = p.scripts.besideEngine(ctx, &running, info)
		}
		conn := serve(t, func(s *grpc.Server) { workerv1.RegisterWorkerServer(s, w) })
		member := fleet.Pretended(name, rpc.Dial(p.middle.Name, name, workerv1.NewWorkerClient(conn).Generate, methods.Worker))
		member.Say(info)
		members = append(members, member)
		p.workers = append(p.workers, w)
	}
	p.pool.Pretend(members...)
	conn := serve(t, func(s *grpc.Server) {
		chatv1.RegisterChatServer(s, &chatServer{hop: p.middle, engine: chat.New(model, queue.Stage(p.pool.Generate))})
	})
	p.chat = rpc.Dial(p.edge.Name, p.middle.Name, chatv1.NewChatClient(conn).Generate, methods.Chat)
	return p
}

// serve serves within this process until the test ends, and returns a connection.
func serve(t *testing.T, register func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	ln := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	register(srv)
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(ln) })
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		serving.Wait()
	})
	return conn
}

// moves returns the number of moves of streams to other workers.
func (p *path) moves() (n int) {
	for _, r := range ledger.At(p.middle).Ended(1<<20, func(*streamv1.Record) bool { return true }) {
		n += len(r.GetMoves())
	}
	return n
}

// errLost is the error with which an engine loses a stream.
var errLost = streamerr.New(streamerr.Draining, "the script says so")

// A fakeModel is the model of a batch loop: an engine embedded in the worker.
type fakeModel struct {
	scripts *scripts
	running map[uint64]*sequence
}

type sequence struct {
	script *script
	tokens int // of the answer
}

func (m *fakeModel) Check(req *workerv1.TokenRequest) error {
	if m.scripts.of(req.GetStreamId()).begin(len(req.GetPrompt()), int(req.GetGenerated())) {
		return errLost
	}
	return nil
}

func (m *fakeModel) Join(id uint64, req *workerv1.TokenRequest) error {
	m.running[id] = &sequence{m.scripts.of(req.GetStreamId()), int(req.GetGenerated())}
	return nil
}

func (m *fakeModel) Leave(id uint64) { delete(m.running, id) }

func (m *fakeModel) KV() (used, total uint64) { return 0, 0 }

func (m *fakeModel) Step(ids []uint64, out []batch.Output) ([]batch.Output, error) {
	for _, id := range ids {
		s := m.running[id]
		if s.script.lose(s.tokens) {
			out = append(out, batch.Output{ID: id, Err: errLost})
			continue
		}
		token, _, _, finish := s.script.next(s.tokens)
		s.tokens++
		out = append(out, batch.Output{ID: id, Token: token, Hidden: finish == llmv1.Finish_FINISH_STOP, Finish: finish, Cached: s.script.cached})
	}
	return out, nil
}

// besideEngine returns an engine whose server plays a script.
func (s *scripts) besideEngine(ctx context.Context, running *sync.WaitGroup, info *llmv1.WorkerInfo) func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	up := &beside.Upstream{Name: info.GetModel(), Context: contextLength, Vocab: int(info.GetVocabSize()), EOS: []uint32{eos}, Capabilities: info.GetCapabilities(), Resumes: true}
	up.Ask = func(_ context.Context, req *workerv1.TokenRequest) (beside.Call, error) {
		one := s.of(req.GetStreamId())
		if one.begin(len(req.GetPrompt()), int(req.GetGenerated())) {
			return nil, errLost
		}
		c := &besideCall{script: one, tokens: int(req.GetGenerated()), stopped: make(chan struct{})}
		c.Answer = beside.NewAnswer(req, up.Vocab, up.EOS)
		c.Found(one.cached)
		return c, nil
	}
	e := beside.New(beside.Options{MaxRunning: 1000}, func(context.Context, *beside.Upstream, bool) (*beside.Upstream, error) { return up, nil })
	healthy := make(chan struct{})
	running.Go(func() { e.Watch(ctx, func(bool) { close(healthy) }) })
	<-healthy
	return e.Generate
}

// A besideCall is one answer of a server beside the worker. It sends one or a few tokens at a time.
type besideCall struct {
	beside.Answer
	script  *script
	tokens  int // of the answer
	once    sync.Once
	stopped chan struct{}
}

func (c *besideCall) Open(context.Context) error { return nil }

func (c *besideCall) Stop() bool {
	c.once.Do(func() { close(c.stopped) })
	return true
}

func (c *besideCall) Next() ([]uint32, *llmv1.End, error) {
	select {
	case <-c.stopped:
		if c.tokens%2 == 0 {
			return nil, nil, errors.New("stopped")
		} // otherwise the server has already sent more
	case <-time.After(time.Second / pace):
	}
	var ids []uint32
	for range 1 + c.tokens%3 {
		if c.script.lose(c.tokens) {
			if len(ids) > 0 { // tokens sent before still arrive
				c.script.relose(c.tokens)
				break
			}
			return nil, nil, errLost
		}
		id, ok, last, finish := c.script.next(c.tokens)
		if ok {
			c.tokens++
			ids = append(ids, id)
		}
		if last {
			return c.last(ids, finish)
		}
	}
	ids, err := c.Take(ids)
	return ids, nil, err
}

func (c *besideCall) last(ids []uint32, finish llmv1.Finish) ([]uint32, *llmv1.End, error) {
	ids, err := c.Take(ids)
	if err != nil {
		return nil, nil, err
	}
	rest, end := c.End(finish, beside.Usage{Cached: c.script.cached})
	return append(ids, rest...), end, nil
}
