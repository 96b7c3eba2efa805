package load

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A Load runs streams until Stop.
type Load struct {
	stop context.CancelFunc
	all  sync.WaitGroup
}

// Stop makes all clients leave, and returns when they have.
func (l *Load) Stop() {
	l.stop()
	l.all.Wait()
}

// afterFailure is the backoff of a closed-loop client after a failed stream, so that a system that
// refuses streams is not flooded.
const afterFailure = 20 * time.Millisecond

// opening is the number of connections opened at a time: more would overflow a listener's backlog.
const opening = 64

// Closed starts n clients of addr. Each requests one stream after another: a closed loop. next
// returns the requests.
func Closed(ctx context.Context, addr string, n int, r *Recorder, next func() Request) *Load {
	ctx, stop := context.WithCancel(ctx)
	l := &Load{stop: stop}
	begun := make(chan struct{}, opening)
	for range n {
		l.all.Go(func() {
			select {
			case begun <- struct{}{}:
			case <-ctx.Done():
				return
			}
			c := r.conn(addr)
			defer c.close()
			c.connect(ctx)
			<-begun
			for ctx.Err() == nil {
				if !c.stream(ctx, next(), time.Now()) {
					sleepUntil(ctx, time.Now().Add(afterFailure))
				}
			}
		})
	}
	return l
}

// connect opens the connection early. If that fails, the first request returns the error.
func (c *conn) connect(ctx context.Context) {
	dialer := net.Dialer{Timeout: dialing}
	if n, err := dialer.DialContext(ctx, "tcp", c.addr); err == nil {
		c.net = n
		c.in.Reset(c)
	}
}

// Open starts requests at a fixed rate, in requests per second, at random times (a Poisson
// process), whether or not earlier requests have been answered: an open loop. At most clients of
// them run at a time; the latency of a request that waits for a client counts from its scheduled
// time.
func Open(ctx context.Context, addr string, rate float64, clients int, r *Recorder, next func() Request) *Load {
	ctx, stop := context.WithCancel(ctx)
	l := &Load{stop: stop}
	due := make(chan time.Time)
	for range clients {
		l.all.Go(func() {
			c := r.conn(addr)
			defer c.close()
			for intended := range due {
				c.stream(ctx, next(), intended)
			}
		})
	}
	l.all.Go(func() {
		defer close(due)
		at := time.Now()
		for {
			at = at.Add(time.Duration(rand.ExpFloat64() / rate * float64(time.Second)))
			if !sleepUntil(ctx, at) {
				return
			}
			select {
			case due <- at:
			case <-ctx.Done():
				return
			}
		}
	})
	return l
}

// sleepUntil sleeps until a time, and reports whether ctx is still live.
func sleepUntil(ctx context.Context, at time.Time) bool {
	wait := time.NewTimer(time.Until(at))
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Unread starts n clients of addr that request one stream each and read none of it until Stop.
func Unread(ctx context.Context, addr string, n int, r *Recorder, req Request) *Load {
	ctx, stop := context.WithCancel(ctx)
	l := &Load{stop: stop}
	for range n {
		l.all.Go(func() {
			c := r.conn(addr)
			defer c.close()
			c.connect(ctx)
			if c.net == nil {
				return
			}
			if _, err := c.net.Write(appendRequest(nil, addr, streams.Add(1), req)); err != nil {
				c.shard.fail(err)
				return
			}
			<-ctx.Done()
		})
	}
	return l
}
