package kitexstream

import (
	"context"
	"errors"
	"time"

	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// clockSlack bounds the time by which the caller's timer may fire before this hop's timer for the
// same deadline.
const clockSlack = 100 * time.Millisecond

// expired reports whether a reset that came left before the deadline is the caller's timer. total
// is the time that the call had at its beginning. The slack of a short deadline is a quarter of it,
// so that a short call may still end for other reasons.
func expired(left, total time.Duration) bool {
	return left < min(clockSlack, total/4)
}

// A clock has the time limit of a server's stream.
type clock struct {
	at    time.Time // the zero time if the call has no deadline
	total time.Duration
}

func newClock(ctx context.Context) clock {
	at, ok := ctx.Deadline()
	if !ok {
		return clock{}
	}
	return clock{at, time.Until(at)}
}

func (c clock) expired() bool { return !c.at.IsZero() && expired(time.Until(c.at), c.total) }

// stopped returns why the context of a handler ended before the handler returned, or nil while the
// context is live. An empty path stands for this hop. draining reports that the server is shutting
// down, gone that the caller's connection has ended.
func stopped(base context.Context, caller string, limit clock, draining, gone bool) *streamerr.Error {
	err := base.Err()
	if err == nil {
		return nil
	}
	if x, ok := asException(err); ok {
		e, _ := x.ending() // of the caller or its connection: a server that shuts down closes no connection with streams
		if len(e.Path) == 0 {
			e.Path = streamerr.NewPath(caller)
		}
		return e
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return expiredError(err)
	case tooOld(err):
		return &streamerr.Error{Reason: streamerr.Draining, Message: "the server closed the connection because of its maximum age", Cause: err}
	case shutDown(err) && draining:
		return &streamerr.Error{Reason: streamerr.Draining, Message: "this server shut down before the handler returned", Cause: err}
	case shutDown(err) && gone: // Kitex's text is that of a shutdown
		return &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(caller), Message: "the caller's connection broke", Cause: err}
	case shutDown(err): // Kitex passes the shutdown of the caller's own server on to its calls
		return &streamerr.Error{Reason: streamerr.Draining, Path: streamerr.NewPath(caller), Message: "the caller shut down", Cause: err}
	case lost(err):
		return &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(caller), Message: "the caller's connection broke", Cause: err}
	case limit.expired():
		return expiredError(err)
	}
	return &streamerr.Error{Reason: streamerr.PeerReset, Path: streamerr.NewPath(caller), Message: "the caller reset the call without a reason", Cause: err}
}

func expiredError(err error) *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Deadline, Message: "the caller's deadline for the call passed", Cause: err}
}
