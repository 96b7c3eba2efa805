package fleet

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/methods/codec"
	"github.com/whence-dev/whence/pkg/rpc/problem"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// A lost worker is dialed again as often as it is asked, not ever more seldom.
	redialEvery = ProbeEvery
	// A worker whose host vanished without a word is noticed after these two.
	pingEvery   = 20 * time.Second
	pingTimeout = 5 * time.Second
)

// KVEvents are what a worker tells of its KV cache.
type KVEvents interface {
	Recv() (*workerv1.KVEventsResponse, error)
}

// An Engine answers token ids. An item is valid until the next one.
type Engine = stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// A Starter is an Engine that needs no goroutine while a link carries the stream.
type Starter = stream.Starter[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// A Worker is the connection to one llm-worker, and what is known of it.
type Worker struct {
	// Static.
	target   string
	slot     int
	conn     io.Closer
	client   workerv1.WorkerClient
	health   healthpb.HealthClient
	streams  streamv1.StreamsClient
	check    func(*Worker, *llmv1.WorkerInfo) error
	starter  func(peer string) Starter
	embed    func(peer string) EmbedEngine
	events   func(context.Context) (KVEvents, error)
	log      *slog.Logger
	cooled   func(streamerr.Reason) // called when the worker is ejected; may be nil
	probeNow chan struct{}          // capacity 1: a failed stream has the worker probed at once
	closed   func()                 // called once, when the connection is closed
	turned   chan struct{}          // capacity 1: its health has changed

	unwatch context.CancelFunc // nil while nobody asks the worker; guarded by the fleet's mu
	leaving atomic.Bool        // it is no member any more, and is closed when it has no stream
	closing sync.Once

	// Owned by watch.
	logged  problem.Log
	late    int // probes in a row that it has not answered in time
	unheard int // probes without any answer so far

	name    atomic.Pointer[string]           // its name in its last answer; nil before the first answer
	probed  atomic.Pointer[report]           // the result of the last probe; nil before the first
	info    atomic.Pointer[llmv1.WorkerInfo] // nil while the worker is not healthy
	ours    atomic.Int64                     // streams that this process has on it
	others  atomic.Int64                     // streams of other callers on it, as of the last probe
	unread  atomic.Int64                     // tokens of our streams' prompts that it has still to read, as far as is known
	tokens  atomic.Int64                     // tokens of its KV cache that our streams take, as far as is known
	heard   atomic.Bool                      // one of our streams has had a message since the last probe began
	breaker breaker
	down    downSignal
}

// A Conn is a connection to one worker.
type Conn interface {
	grpc.ClientConnInterface
	io.Closer
}

// A Connect connects to the worker at target, a host:port. It does not wait for the connection.
type Connect func(target string) (Conn, error)

// overGRPC connects to the worker at target in watch, with grpc-go.
func overGRPC(target string) (Conn, error) {
	return grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: redialEvery / 10, Multiplier: 2, MaxDelay: redialEvery}, MinConnectTimeout: redialEvery}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		// A library of this process registers gzip. A worker that is offered it may compress every token.
		grpc.WithDefaultCallOptions(experimental.AcceptCompressors()),
	)
}

// OverLinks returns a Connect whose streams go over links where the worker serves them. log gets a line
// when they begin to.
func OverLinks(log *slog.Logger) Connect {
	return func(target string) (Conn, error) {
		cc, err := overGRPC(target)
		if err != nil {
			return nil, err
		}
		return link.Upgrade(cc, target, link.Options{}, log), nil
	}
}

// dial returns the worker at target, a host:port. self is this hop's name. check says why a worker that answers cannot be used.
func dial(connect Connect, self, target string, check func(*Worker, *llmv1.WorkerInfo) error, log *slog.Logger) (*Worker, error) {
	if connect == nil {
		connect = overGRPC
	}
	conn, err := connect(target)
	if err != nil {
		return nil, fmt.Errorf("worker at %s: %w", target, err)
	}
	client := workerv1.NewWorkerClient(conn)
	generate := codec.Tokens(client.Generate)
	return &Worker{
		target: target, conn: conn, client: client, health: healthpb.NewHealthClient(conn), streams: streamv1.NewStreamsClient(conn),
		starter: func(peer string) Starter { return rpc.DialStarter(self, peer, generate, methods.Worker) },
		embed:   dialEmbed(self, client),
		events: func(ctx context.Context) (KVEvents, error) {
			return client.KVEvents(ctx, &workerv1.KVEventsRequest{})
		},
		check: check, log: log, probeNow: make(chan struct{}, 1), turned: make(chan struct{}, 1),
	}, nil
}

// Name returns what the worker called itself last, or "".
func (w *Worker) Name() string {
	if name := w.name.Load(); name != nil {
		return *name
	}
	return ""
}

// Slot returns a number below MaxWorkers that no other member of the fleet has, for tables about workers. It is another's when
// the worker has been taken from the fleet, though streams may still run on it.
func (w *Worker) Slot() int { return w.slot }

// Info returns what the worker says of itself, nil while it is not healthy. It must not be changed.
func (w *Worker) Info() *llmv1.WorkerInfo { return w.info.Load() }

// Answers reports whether a worker takes whole streams. One that is not healthy does not.
func Answers(info *llmv1.WorkerInfo) bool {
	return info != nil && info.GetRole() != llmv1.Role_ROLE_PREFILL
}

// Last returns what it said when it was healthy last, nil if it never was.
func (w *Worker) Last() *llmv1.WorkerInfo {
	if last := w.probed.Load(); last != nil {
		return last.info
	}
	return nil
}

// Starter returns the worker's engine, under the name that it had when it was chosen.
func (w *Worker) Starter(peer string) Starter { return w.starter(peer) }

// KVEvents returns what the worker's KV cache holds, as it changes.
func (w *Worker) KVEvents(ctx context.Context) (KVEvents, error) { return w.events(ctx) }

// Turned has something when the worker's health has changed. There is one reader.
func (w *Worker) Turned() <-chan struct{} { return w.turned }

// Log is where what happens to the worker is told.
func (w *Worker) Log() *slog.Logger { return w.log }

// Load returns how many streams the worker has: ours as of now, those of others as of the last probe.
func (w *Worker) Load() int64 { return w.ours.Load() + w.others.Load() }

// done notes that a stream is no longer on the worker.
func (w *Worker) done() {
	if w.ours.Add(-1) == 0 && w.leaving.Load() {
		w.close()
	}
}

// close closes the connection, once. Nobody waits for it to be gone.
func (w *Worker) close() {
	w.closing.Do(func() {
		_ = w.conn.Close() // it had no stream
		w.closed()
	})
}
