package guard

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A call is an open call with a bounded wait for its first message.
type call struct {
	grpc.ServerStream
	guard *guard
	from  string // the connection

	closing sync.Once
	begun   atomic.Bool                     // the first message has arrived
	expired atomic.Pointer[streamerr.Error] // set if the first message did not arrive in time
}

// Unwrap returns the stream behind the guard.
func (c *call) Unwrap() grpc.ServerStream { return c.ServerStream }

// Touched implements prefetch.Toucher.
func (c *call) Touched(to *prefetch.List) {
	prefetch.Touched(c.ServerStream, to)
	to.Add(prefetch.Of(c))
}

// close counts the call as closed, once.
func (c *call) close() {
	c.closing.Do(func() {
		c.guard.calls.close(c.from)
		c.guard.Observer.CallClosed(c.begun.Load())
	})
}

// RecvMsg implements grpc.ServerStream.
func (c *call) RecvMsg(m any) error {
	if c.begun.Load() {
		return c.ServerStream.RecvMsg(m)
	}
	if expired := c.expired.Load(); expired != nil {
		return expired
	}
	err := c.first(m)
	if err == nil {
		c.begun.Store(true)
		c.guard.Observer.CallBegun()
	}
	return err
}

// first receives the first message within the limit. When the limit has passed, the goroutine that
// still receives ends with the call, after the handler has returned.
func (c *call) first(m any) error {
	limit := c.guard.Limits.FirstMessage
	link, ok := c.ServerStream.(interface{ More() bool }) // on a link, the first message usually arrives with the call
	if limit <= 0 || ok && link.More() {
		return c.recv(m)
	}
	received := make(chan error, 1)
	go func() { received <- c.recv(m) }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-received:
		return err
	case <-timer.C:
		c.guard.met(c.Context(), FirstMessage)
		expired := streamerr.New(streamerr.Deadline, "the call sent no message within %v (first-message timeout of %s)", limit, c.guard.Name)
		c.expired.Store(expired)
		return expired
	}
}

// recv receives a message. A panic of a codec at the caller's message ends only this call.
func (c *call) recv(m any) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.guard.panicked(c.Context(), v)
		}
	}()
	return c.ServerStream.RecvMsg(m)
}

// calls counts the open calls. All methods are safe for concurrent use.
type calls struct {
	limits Limits

	mu    sync.Mutex // guards the following fields
	total int
	by    map[string]int // by connection
}

func newCalls(limits Limits) *calls {
	return &calls{limits: limits, by: map[string]int{}}
}

// open admits a call of a connection, or returns the limit that prevents this.
func (c *calls) open(from string) (met Limit, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.limits.Total > 0 && c.total >= c.limits.Total:
		return Total, true
	case c.limits.PerConnection > 0 && from != "" && c.by[from] >= c.limits.PerConnection:
		return PerConnection, true
	}
	c.total++
	c.by[from]++
	return "", false
}

// close releases a call that open admitted.
func (c *calls) close(from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if c.by[from]--; c.by[from] == 0 {
		delete(c.by, from)
	}
}
