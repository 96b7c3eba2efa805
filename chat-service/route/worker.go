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
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// anyWorker names a worker in paths until it has said its name.
	anyWorker = "llm-worker"
	// probeEvery is how often a worker is asked how it is, probeTimeout how long it may take to answer.
	probeEvery   = time.Second
	probeTimeout = 2 * time.Second
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
	info   atomic.Pointer[workerv1.InfoResponse] // nil while the worker is not healthy
}

// Dial returns the worker at target, a host:port; it connects in Watch. self is this hop's name. check says why a worker
// that answers cannot be used.
func Dial(self, target string, check func(*workerv1.InfoResponse) error, log *slog.Logger) (*Worker, error) {
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
	)
	if err != nil {
		return nil, fmt.Errorf("worker at %s: %w", target, err)
	}
	return &Worker{self: self, conn: conn, client: workerv1.NewWorkerClient(conn), check: check, log: log}, nil
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
		case <-ctx.Done():
			return
		}
	}
}

func (w *Worker) probe(ctx context.Context, changed func(healthy bool)) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	info, err := w.client.Info(ctx, &workerv1.InfoRequest{}, grpc.WaitForReady(true))
	if err == nil {
		err = w.check(info)
	}
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

// Healthy reports whether the worker answered when it was last asked.
func (w *Worker) Healthy() bool { return w.info.Load() != nil }

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
