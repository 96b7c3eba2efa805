package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/whence-dev/whence/chat-service/kvcache"
	"github.com/whence-dev/whence/chat-service/route"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/llm-worker/worker"
)

// contextLength is the context of the simulated model, in tokens.
const contextLength = 32 << 10

// A fleet holds workers in this process and the pool that chooses among them.
type fleet struct {
	pool *route.Pool
	end  func() error
}

// start starts workers and waits until all of them are healthy.
func start(ctx context.Context, c *options, p policy) (*fleet, error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	var targets []string
	failed := make(chan error, c.workers+1)
	for i := range c.workers {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			stop()
			return nil, err
		}
		targets = append(targets, ln.Addr().String())
		w := worker.Config{Name: fmt.Sprintf("llm-worker/%d", i), Engine: worker.Sim, MaxRunning: 64, MaxQueued: 10000, KVTokens: c.kvTokens}
		switch {
		case p.prefill == 0:
		case i < p.prefill:
			w.Role = worker.Prefill
		default:
			w.Role = worker.Decode
		}
		w.Sim.Speed, w.Sim.ContextLength, w.Sim.Quiet = 1/c.slow, contextLength, p.quiet
		all.Go(func() {
			if err := worker.Run(running, w, ln, slog.New(slog.DiscardHandler)); err != nil {
				failed <- fmt.Errorf("%s: %w", w.Name, err)
			}
		})
	}
	opts := route.Options{
		Self: "chat-service", Migrations: 3, Check: func(*llmv1.WorkerInfo) error { return nil }, Log: slog.New(slog.DiscardHandler),
	}
	var err error
	opts.Policy, opts.Prompts, opts.KV, err = route.Policies(p.name, kvcache.Options{Overlap: kvcache.DefaultOverlap, TTL: time.Duration(float64(kvcache.DefaultTTL) * c.slow)})
	if err != nil {
		stop()
		return nil, err
	}
	pool := route.New(opts)
	if err := pool.Set(targets...); err != nil {
		stop()
		return nil, err
	}
	all.Go(func() { pool.Watch(running, func(bool) {}) })
	f := &fleet{pool: pool, end: func() error {
		stop()
		pool.Close()
		all.Wait()
		var err error
		close(failed)
		for e := range failed {
			err = errors.Join(err, e)
		}
		return err
	}}
	if err := awaitHealthy(ctx, pool, failed); err != nil || len(failed) > 0 {
		return nil, errors.Join(err, f.end())
	}
	return f, nil
}

// awaitHealthy waits until all workers of a pool are healthy, or one has failed. The first event of a
// worker lists all its blocks, so following a worker late loses nothing.
func awaitHealthy(ctx context.Context, pool *route.Pool, failed chan error) error {
	return lab.Await(ctx, "all workers are healthy", func() bool {
		healthy, known := pool.Count()
		return healthy == known || len(failed) > 0 // end reports the failure
	})
}
