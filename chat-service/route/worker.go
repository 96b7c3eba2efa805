// Package route finds the worker that answers.
package route

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// anyWorker names a worker in paths until it has said its name.
	anyWorker = "llm-worker"
	// probeEvery is how often a worker is asked how it is, probeTimeout how long it may take to answer.
	probeEvery   = time.Second
	probeTimeout = time.Second
	// A lost worker is dialed again as often as it is asked, not ever more seldom.
	redialEvery = time.Second
	// retryAfter is what callers are told while no worker is healthy.
	retryAfter = time.Second
	// A worker whose host vanished without a word is noticed after these two.
	pingEvery   = 20 * time.Second
	pingTimeout = 5 * time.Second
)

// A Worker is the connection to one llm-worker, and what is known of it.
type Worker struct {
	self   string
	conn   *grpc.ClientConn
	client workerv1.WorkerClient
	check  func(*workerv1.InfoResponse) error
	log    *slog.Logger
	health healthpb.HealthClient
	doubt  chan struct{}                         // capacity 1: a stream's ending says that the worker should be asked now
	info   atomic.Pointer[workerv1.InfoResponse] // nil while the worker is not healthy
}

// Dial returns the worker at target, a host:port; it connects in Watch. self is this hop's name. check says why a worker
// that answers cannot be used.
func Dial(self, target string, check func(*workerv1.InfoResponse) error, log *slog.Logger) (*Worker, error) {
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: redialEvery / 10, Multiplier: 2, MaxDelay: redialEvery}, MinConnectTimeout: redialEvery}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		// A library of this process registers gzip. A worker that is offered it may compress every token.
		grpc.WithDefaultCallOptions(experimental.AcceptCompressors()),
	)
	if err != nil {
		return nil, fmt.Errorf("worker at %s: %w", target, err)
	}
	return &Worker{
		self: self, conn: conn, client: workerv1.NewWorkerClient(conn), health: healthpb.NewHealthClient(conn),
		check: check, log: log, doubt: make(chan struct{}, 1),
	}, nil
}

// Close closes the connection. Streams over it must have ended.
func (w *Worker) Close() error { return w.conn.Close() }

// Watch asks the worker how it is, again and again, until ctx is done. changed is called when its health has changed.
func (w *Worker) Watch(ctx context.Context, changed func(healthy bool)) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		w.probe(ctx, changed)
		select {
		case <-tick.C:
		case <-w.doubt:
		case <-ctx.Done():
			return
		}
	}
}

func (w *Worker) probe(ctx context.Context, changed func(healthy bool)) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	info, err := w.ask(ctx)
	if err != nil {
		info = nil
	}
	was := w.info.Swap(info)
	switch {
	case was == nil && info != nil:
		w.log.Info("worker is healthy", "worker", info.GetInstance(), "target", w.conn.Target(), "model", info.GetModel(), "engine", info.GetEngine())
		changed(true)
	case was != nil && info == nil && !errors.Is(ctx.Err(), context.Canceled):
		w.log.Warn("worker is not healthy", "target", w.conn.Target(), "err", err)
		changed(false)
	}
}

// ask returns what the worker says of itself, if it takes streams and can be used.
func (w *Worker) ask(ctx context.Context) (*workerv1.InfoResponse, error) {
	info, err := w.client.Info(ctx, &workerv1.InfoRequest{})
	if err != nil {
		return nil, err
	}
	if err := w.check(info); err != nil {
		return nil, err
	}
	health, err := w.health.Check(ctx, &healthpb.HealthCheckRequest{Service: workerv1.Worker_ServiceDesc.ServiceName})
	switch {
	case status.Code(err) == codes.Unimplemented: // a worker that has no health service is as healthy as it answers
	case err != nil:
		return nil, err
	case health.GetStatus() != healthpb.HealthCheckResponse_SERVING:
		return nil, fmt.Errorf("%s is %s", info.GetInstance(), health.GetStatus())
	}
	return info, nil
}

// Healthy reports whether the worker answered when it was last asked.
func (w *Worker) Healthy() bool { return w.info.Load() != nil }

// Count returns how many workers are healthy, of how many.
func (w *Worker) Count() (healthy, known int) {
	if w.Healthy() {
		healthy = 1
	}
	return healthy, 1
}

// Generate is a stream.Engine. A worker that cannot be reached is UNAVAILABLE; one that is lost once the stream has
// started is PEER_LOST.
func (w *Worker) Generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	peer := anyWorker
	if info := w.info.Load(); info != nil {
		peer = info.GetInstance()
	}
	engine := rpc.Dial(w.self, peer, w.client.Generate, rpc.Worker)
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		started := false
		for out, err := range engine(ctx, req) {
			if errors.Is(err, streamerr.PeerLost) || errors.Is(err, streamerr.Draining) {
				w.suspect()
			}
			if err != nil && !started && errors.Is(err, streamerr.PeerLost) {
				e := streamerr.New(streamerr.Unavailable, "no healthy worker for %q", req.GetModel())
				e.Cause, e.RetryAfter = err, retryAfter
				err = e
			}
			started = true
			if !yield(out, err) {
				return
			}
		}
	}
}

// suspect has the worker asked how it is, now.
func (w *Worker) suspect() {
	select {
	case w.doubt <- struct{}{}:
	default:
	}
}

// Why returns what the worker knows of a stream; nothing if it cannot be asked.
func (w *Worker) Why(ctx context.Context, id string) []*streamv1.Record {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	resp, err := streamv1.NewStreamsClient(w.conn).Why(ctx, &streamv1.WhyRequest{StreamId: id})
	if err != nil {
		return nil // the hops that can be asked tell what they know
	}
	return resp.GetHops()
}
