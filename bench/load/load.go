package load

import (
	"context"
	"net"
	"time"

	"github.com/whence-dev/whence/internal/load"
)

// A Load runs streams until Stop.
type Load interface{ Stop() }

// Closed starts n clients of addr. Each requests one stream after another: a closed loop. next
// returns the requests.
func Closed(ctx context.Context, addr string, n int, r *Recorder, next func() Request) Load {
	return load.Start(ctx, load.Plan{Clients: n}, func(ctx context.Context) load.Client {
		c := r.conn(addr, next)
		c.connect(ctx)
		return c
	})
}

// Open starts requests at a fixed rate, in requests per second, at random times. At most clients of
// them run at a time; the latency of a request that waits for a client counts from its intended
// time.
func Open(ctx context.Context, addr string, rate float64, clients int, r *Recorder, next func() Request) Load {
	return load.Start(ctx, load.Plan{Clients: clients, Rate: rate}, func(context.Context) load.Client { return r.conn(addr, next) })
}

// connect opens the connection early. If that fails, the first request returns the error.
func (c *conn) connect(ctx context.Context) {
	dialer := net.Dialer{Timeout: dialing}
	if n, err := dialer.DialContext(ctx, "tcp", c.addr); err == nil {
		c.net = n
		c.in.Reset(c)
	}
}

// Do implements load.Client.
func (c *conn) Do(ctx context.Context, intended time.Time) bool {
	return c.stream(ctx, c.next(), intended)
}

// Unread starts n clients of addr that request one stream each and read none of it until Stop.
func Unread(ctx context.Context, addr string, n int, r *Recorder, req Request) Load {
	return load.Start(ctx, load.Plan{Clients: n, Requests: int64(n)}, func(ctx context.Context) load.Client {
		c := &unread{r.conn(addr, nil), req}
		c.connect(ctx)
		return c
	})
}

// An unread client reads no answer.
type unread struct {
	*conn
	req Request
}

// Do implements load.Client.
func (u *unread) Do(ctx context.Context, _ time.Time) bool {
	if u.net == nil {
		return true
	}
	if _, err := u.net.Write(appendRequest(nil, u.addr, streams.Add(1), u.req)); err != nil {
		u.shard.fail(err)
		return true
	}
	<-ctx.Done()
	return true
}
