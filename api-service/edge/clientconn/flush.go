package clientconn

import (
	"context"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// Flush blocks until the client has taken all bytes written. Its errors are those of Write.
func (c *Conn) Flush() error {
	failed, err := c.flush()
	if failed {
		c.left(streamerr.As(err))
	}
	return err
}

// flush is Flush. failed reports that the write of this call failed, rather than an earlier one.
func (c *Conn) flush() (failed bool, err error) {
	c.beginFlush()
	defer c.endFlush()
	for {
		c.mu.Lock()
		if c.gone != nil || c.released {
			defer c.mu.Unlock()
			return false, c.why()
		}
		out := c.behind[:min(len(c.behind), piece)]
		c.mu.Unlock()
		if len(out) == 0 {
			return false, nil
		}
		err := c.socket.Write(out)
		if failed, gone := c.flushed(len(out), err); gone != nil {
			return failed, gone
		}
	}
}

// beginFlush waits until no other Flush writes.
func (c *Conn) beginFlush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.flushing {
		c.flushEnded.Wait()
	}
	c.flushing = true
}

// endFlush lets another Flush write.
func (c *Conn) endFlush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushing = false
	c.flushEnded.Broadcast()
}

// flushed records that the kernel has taken n of the pending bytes, or that the write failed with
// err. failed reports that the client counts as gone because of err.
func (c *Conn) flushed(n int, err error) (failed bool, gone *streamerr.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	switch {
	case c.gone != nil: // the pending bytes were dropped while they were written, and left has been called
		return false, c.gone
	case err != nil:
		c.fail(broken(err))
		return true, c.gone
	}
	c.behind = c.behind[n:]
	c.taken += int64(n)
	if len(c.behind) > 0 {
		c.clock.blocked(now) // each piece has its own write timeout
		c.arm(now)
		return false, nil
	}
	c.behind = nil
	c.clock.settled()
	c.arm(now)
	c.count(now, c.late)
	c.late = 0
	return false, nil
}

// Serve writes the bytes that the client does not take at once, until done is closed, ctx is done,
// or the client counts as gone. The handler calls Serve while another goroutine writes.
func (c *Conn) Serve(ctx context.Context, done <-chan struct{}) {
	waits := make(chan struct{}, 1)
	waits <- struct{}{} // Write may have been called already
	c.mu.Lock()
	c.waits = waits
	c.mu.Unlock()
	for {
		select {
		case <-waits:
			if c.Flush() != nil {
				return
			}
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}
