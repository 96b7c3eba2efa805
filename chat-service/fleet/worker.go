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
	"github.com/whence-dev/whence/pkg/rpc/mtls"
	"github.com/whence-dev/whence/pkg/rpc/problem"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// redialEvery is the maximum backoff for connecting to a lost worker: one attempt per probe.
	redialEvery = ProbeEvery
	// A worker whose host vanished silently is detected within pingEvery plus pingTimeout.
	pingEvery   = 20 * time.Second
	pingTimeout = 5 * time.Second
)

// KVEvents is the stream of changes of a worker's KV cache.
type KVEvents interface {
	Recv() (*workerv1.KVEventsResponse, error)
}

// An Engine answers token ids. An item is valid until Item returns.
type Engine = stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// A Worker is the connection to one llm-worker, with its state.
type Worker struct {
	// Static.
	target   string
	slot     int
	conn     io.Closer
	client   workerv1.WorkerClient
	health   healthpb.HealthClient
	streams  streamv1.StreamsClient
	check    func(*Worker, *llmv1.WorkerInfo) error
	engine   func(peer string) Engine
	embed    func(peer string) EmbedEngine
	score    func(peer string) ScoreEngine
	events   func(context.Context) (KVEvents, error)
	log      *slog.Logger
	cooled   func(streamerr.Reason) // called when the worker is ejected; may be nil
	probeNow chan struct{}          // capacity 1: requests an immediate probe
	closed   func()                 // called once, when the connection is closed
	turned   chan struct{}          // capacity 1: signals a change of health

	unwatch context.CancelFunc // nil while the worker is not probed; guarded by the fleet's mu
	leaving atomic.Bool        // no longer a member; the connection is closed when the last stream ends
	closing sync.Once

	// Owned by watch.
	logged     problem.Log
	late       int // late probes in a row
	unanswered int // probes without any answer so far

	name    atomic.Pointer[string]           // its name in its last answer; nil before the first answer
	probed  atomic.Pointer[report]           // the result of the last probe; nil before the first
	info    atomic.Pointer[llmv1.WorkerInfo] // nil while the worker is not healthy
	ours    atomic.Int64                     // streams of this process on the worker
	others  atomic.Int64                     // streams of other callers on the worker, as of the last probe
	unread  atomic.Int64                     // prompt tokens that the worker has still to read (estimate)
	tokens  atomic.Int64                     // tokens that our streams occupy in its KV cache (estimate)
	alive   atomic.Bool                      // one of our streams has received a message since the last probe began
	breaker breaker
	down    downSignal
	hooks   probeHooks
}

// A Conn is a connection to one worker.
type Conn interface {
	grpc.ClientConnInterface
	io.Closer
}

// A Connect returns a connection to the worker at target (host:port). It must not wait until the
// connection is established.
type Connect func(target string) (Conn, error)

// OverGRPC returns a Connect with grpc-go. A nil identity means plain TCP.
func OverGRPC(identity *mtls.Identity) Connect {
	return func(target string) (Conn, error) { return overGRPC(identity, target) }
}

// overGRPC connects to the worker at target with grpc-go.
func overGRPC(identity *mtls.Identity, target string) (*grpc.ClientConn, error) {
	return grpc.NewClient(target,
		grpc.WithTransportCredentials(identity.ClientCredentials(target)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: redialEvery / 10, Multiplier: 2, MaxDelay: redialEvery}, MinConnectTimeout: redialEvery}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		// A library of this process registers gzip. A worker that sees gzip offered may compress
		// every token.
		grpc.WithDefaultCallOptions(experimental.AcceptCompressors()),
	)
}

// OverLinks returns a Connect whose streams use links if the worker serves links. The connection
// logs when it switches to links, and calls opened for each stream (see link.Options). A nil
// identity means plain TCP.
func OverLinks(identity *mtls.Identity, log *slog.Logger, opened func(linked bool)) Connect {
	return func(target string) (Conn, error) {
		cc, err := overGRPC(identity, target)
		if err != nil {
			return nil, err
		}
		return link.Upgrade(cc, target, link.Options{TLS: identity.ClientTLS(target), Opened: opened}, log), nil
	}
}

// dial returns the worker at target (host:port). self is this hop's name. check returns why a
// worker that answers cannot be used.
func dial(connect Connect, self, target string, check func(*Worker, *llmv1.WorkerInfo) error, log *slog.Logger) (*Worker, error) {
	if connect == nil {
		connect = OverGRPC(nil)
	}
	conn, err := connect(target)
	if err != nil {
		return nil, fmt.Errorf("worker at %s: %w", target, err)
	}
	client := workerv1.NewWorkerClient(conn)
	generate := codec.Tokens(client.Generate)
	return &Worker{
		target: target, conn: conn, client: client, health: healthpb.NewHealthClient(conn), streams: streamv1.NewStreamsClient(conn),
		engine: func(peer string) Engine { return rpc.Dial(self, peer, generate, methods.Worker) },
		embed:  dialUnary(self, client, client.Embed, methods.WorkerEmbed),
		score:  dialUnary(self, client, client.Score, methods.WorkerScore),
		events: func(ctx context.Context) (KVEvents, error) {
			return client.KVEvents(ctx, &workerv1.KVEventsRequest{})
		},
		check: check, log: log, probeNow: make(chan struct{}, 1), turned: make(chan struct{}, 1),
	}, nil
}

// Name returns the last name that the worker reported, or "".
func (w *Worker) Name() string {
	if name := w.name.Load(); name != nil {
		return *name
	}
	return ""
}

// Slot returns a number below MaxWorkers that is unique among the members, for tables indexed by
// worker. After the worker has left the fleet, another worker may get its slot, although streams
// may still run on this one.
func (w *Worker) Slot() int { return w.slot }

// Info returns the worker's latest info, or nil while it is unhealthy. The info must not be
// modified.
func (w *Worker) Info() *llmv1.WorkerInfo { return w.info.Load() }

// Answers reports whether a worker is healthy and takes whole streams.
func Answers(info *llmv1.WorkerInfo) bool {
	return info != nil && info.GetRole() != llmv1.Role_ROLE_PREFILL
}

// Last returns the last info of the worker while it was healthy, or nil if it never was.
func (w *Worker) Last() *llmv1.WorkerInfo {
	if last := w.probed.Load(); last != nil {
		return last.info
	}
	return nil
}

// Engine returns the worker's engine. peer is the worker's name at the time of the choice.
func (w *Worker) Engine(peer string) Engine { return w.engine(peer) }

// KVEvents opens the stream of changes of the worker's KV cache.
func (w *Worker) KVEvents(ctx context.Context) (KVEvents, error) { return w.events(ctx) }

// Turned receives a value when the worker's health has changed. It has one reader.
func (w *Worker) Turned() <-chan struct{} { return w.turned }

// Log returns the logger for events of the worker.
func (w *Worker) Log() *slog.Logger { return w.log }

// Load returns the number of streams on the worker: ours as of now, those of other callers as of
// the last probe.
func (w *Worker) Load() int64 { return w.ours.Load() + w.others.Load() }

// done notes that a stream has left the worker.
func (w *Worker) done() {
	if w.ours.Add(-1) == 0 && w.leaving.Load() {
		w.close()
	}
}

// close closes the connection, once. It does not wait until the connection is gone.
func (w *Worker) close() {
	w.closing.Do(func() {
		_ = w.conn.Close() // no stream uses it
		w.closed()
	})
}
