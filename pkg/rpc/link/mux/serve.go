package mux

import (
	"fmt"
	"time"

	"github.com/whence-dev/whence/internal/bigstack"
	"github.com/whence-dev/whence/pkg/rpc/link/ending"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxServing bounds the calls that are being served on one connection. A RESET ends a stream before
// its handler returns, so calls are counted rather than streams.
const maxServing = 10_000

// takeOpen handles an OPEN: it begins to serve the stream.
func (c *Conn) takeOpen(payload []byte) error {
	call, err := frame.ParseOpen(payload)
	if err != nil {
		return err
	}
	if c.serve == nil {
		return fmt.Errorf("%w: the callee opened a stream", ErrProtocol)
	}
	if c.refuse(call.Stream) {
		return nil
	}
	s := newStream(c, call.Stream)
	serve := c.serve.Open(call, s)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		s.stop()
		return c.err
	case call.Stream <= c.last:
		s.stop()
		return fmt.Errorf("%w: stream %d was opened twice", ErrProtocol, call.Stream)
	}
	c.last = call.Stream
	c.streams[call.Stream] = s
	c.serving++
	c.served.Add(1)
	bigstack.Go(func() { serve(c.returned) })
	return nil
}

// returned is called when a call is no longer being served.
func (c *Conn) returned() {
	c.mu.Lock()
	c.serving--
	c.mu.Unlock()
	c.served.Done()
}

// refuse ends a new stream with RESOURCE_EXHAUSTED if the connection already serves maxServing
// calls.
func (c *Conn) refuse(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving < maxServing || id <= c.last {
		return false
	}
	c.last = id
	c.add(func(b []byte) []byte {
		return ending.Append(b, frame.Ending{Stream: id, Status: ending.Encode(errCrowded)})
	})
	return true
}

// errCrowded ends a refused stream. Package guard uses the same message.
var errCrowded = &streamerr.Error{
	Reason: streamerr.Overloaded, RetryAfter: time.Second,
	Message: "too many calls are open on this connection; end calls that are not needed, or open another connection",
}
