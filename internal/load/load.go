// Package load schedules the requests of a load generator, and keeps the histograms of its
// latencies.
//
// There is no coordinated omission: each request has an intended time, and latencies count from
// that time, however long the request had to wait for a client.
package load

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A Client sends one request after another. It is used by one goroutine.
type Client interface {
	// Do sends a request that was intended for a time, and reads the answer. If ctx ends, the client
	// leaves. Do reports whether the client may send the next request at once.
	Do(ctx context.Context, intended time.Time) bool
	// Close closes the client's connection.
	Close()
}

// A Plan says how many requests are sent, and when.
type Plan struct {
	// Clients is the number of requests that run at a time, or for an open loop the maximum.
	Clients int
	// Rate is the number of requests a second of an open loop: requests begin at random times (a
	// Poisson process), whether or not earlier requests have been answered. 0 means a closed loop:
	// each client sends its next request when it has the answer to the previous one.
	Rate float64
	// Requests is the number of requests after which the load ends; 0 means that it goes on until
	// Stop.
	Requests int64
}

// A Load is a running plan.
type Load struct {
	plan    Plan
	open    func(context.Context) Client
	stop    context.CancelFunc
	begun   atomic.Int64
	unsent  int64 // written before all is done
	all     sync.WaitGroup
	opening chan struct{}
}

// afterFailure is the backoff of a client that may not send its next request at once, so that a
// system that refuses requests is not flooded.
const afterFailure = 20 * time.Millisecond

// maxOpening is the number of clients that open returns at a time: more connections would overflow
// the backlog of a listener.
const maxOpening = 64

// Start begins a load. open returns a new client; it may connect the client.
func Start(ctx context.Context, plan Plan, open func(context.Context) Client) *Load {
	ctx, stop := context.WithCancel(ctx)
	l := &Load{plan: plan, open: open, stop: stop, opening: make(chan struct{}, maxOpening)}
	if plan.Rate > 0 {
		l.all.Go(func() { l.openLoop(ctx) })
		return l
	}
	for range plan.Clients {
		l.all.Go(func() { l.closedLoop(ctx) })
	}
	return l
}

// Stop makes all clients leave, and returns when they have left.
func (l *Load) Stop() {
	l.stop()
	l.all.Wait()
}

// Wait returns when all requests of the plan have been answered, or the load was stopped.
func (l *Load) Wait() {
	l.all.Wait()
	l.stop()
}

// Begun returns the number of requests that have begun.
func (l *Load) Begun() int64 { return l.begun.Load() }

// Unsent returns the number of requests of an open loop that were due before the load was stopped,
// but did not begin, because all clients were busy. It must be called after Stop or Wait.
func (l *Load) Unsent() int64 { return l.unsent }

// client returns a new client, or nil if ctx has ended.
func (l *Load) client(ctx context.Context) Client {
	select {
	case l.opening <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-l.opening }()
	return l.open(ctx)
}

func (l *Load) closedLoop(ctx context.Context) {
	c := l.client(ctx)
	if c == nil {
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		if n := l.begun.Add(1); l.plan.Requests > 0 && n > l.plan.Requests {
			l.begun.Add(-1)
			return
		}
		if !c.Do(ctx, time.Now()) {
			sleepUntil(ctx, time.Now().Add(afterFailure))
		}
	}
}

// openLoop passes the time of each request to a client. It starts another client if all others are
// busy.
func (l *Load) openLoop(ctx context.Context) {
	due := make(chan time.Time)
	defer close(due)
	at, clients := time.Now(), 0
	for n := int64(0); l.plan.Requests == 0 || n < l.plan.Requests; n++ {
		at = l.next(at)
		if !sleepUntil(ctx, at) {
			return
		}
		select {
		case due <- at:
			continue
		default:
		}
		if clients < l.plan.Clients {
			clients++
			l.all.Go(func() { l.serve(ctx, due) })
		}
		select {
		case due <- at:
		case <-ctx.Done():
			for now := time.Now(); !at.After(now); at = l.next(at) {
				l.unsent++
			}
			return
		}
	}
}

// next returns the time of the request after the one at a time.
func (l *Load) next(at time.Time) time.Time {
	return at.Add(time.Duration(rand.ExpFloat64() / l.plan.Rate * float64(time.Second)))
}

// serve sends requests at their times.
func (l *Load) serve(ctx context.Context, due <-chan time.Time) {
	c := l.client(ctx)
	if c == nil {
		return
	}
	defer c.Close()
	for at := range due {
		l.begun.Add(1)
		c.Do(ctx, at)
	}
}

// sleepUntil sleeps until a time, and reports whether ctx is still live.
func sleepUntil(ctx context.Context, at time.Time) bool {
	wait := time.NewTimer(time.Until(at))
	defer wait.Stop()
	select {
	case <-wait.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
