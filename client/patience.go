package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// firstRetry is the delay before the first retry, until the service sets it.
	firstRetry = time.Second
	// longestRetry bounds the delays, unless the service asks for a longer one. A connection that
	// lasted longer than that resets the count of failures.
	longestRetry = 10 * time.Second
	// shortestRetry is the lower bound of the delays, whatever the service asks for.
	shortestRetry = 50 * time.Millisecond
)

// A brokenExchange is an exchange that failed without an ending of the stream, so it can be
// retried. cause is the ending if it is not retried.
type brokenExchange struct{ cause *Error }

func (b *brokenExchange) Error() string { return b.cause.Error() }

// A retryPolicy decides how long to wait before the next attempt, and when to give up.
type retryPolicy struct {
	total    time.Duration
	retry    time.Duration
	failures int                               // consecutive
	since    time.Time                         // time of the first of the consecutive failures
	onRetry  func(attempt int, failure *Error) // or nil
}

func newPatience(total time.Duration, onRetry func(int, *Error)) *retryPolicy {
	return &retryPolicy{total: total, retry: firstRetry, onRetry: onRetry}
}

// calm resets the count of consecutive failures.
func (p *retryPolicy) calm() { p.failures = 0 }

// wait waits after a failure, with an exponential backoff and jitter. It returns nil when it is
// time to retry, or the error with which the reader gives up.
func (p *retryPolicy) wait(ctx context.Context, err error) error {
	b, ok := errors.AsType[*brokenExchange](err)
	if !ok {
		return asError(err)
	}
	now := time.Now()
	if p.failures == 0 {
		p.since = now
	}
	delay := max(p.retry, shortestRetry)
	delay = max(delay, min(delay<<min(p.failures, 10), longestRetry))
	delay = max(delay, b.cause.RetryAfter)
	delay += rand.N(delay/2 + 1)
	p.failures++
	if now.Add(delay).Sub(p.since) > p.total {
		given := *b.cause
		given.GaveUp = true
		given.Message = fmt.Sprintf("%s; attempt %d, %v after the first", b.cause.Text(), p.failures, now.Sub(p.since).Round(time.Millisecond))
		return &given
	}
	if p.onRetry != nil {
		p.onRetry(p.failures+1, b.cause)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return left(ctx)
	}
}

// left returns the error of a reader whose context has ended.
func left(ctx context.Context) *Error {
	cause := context.Cause(ctx)
	reason := ClientGone
	if errors.Is(cause, context.DeadlineExceeded) {
		reason = Deadline
	}
	return &Error{Reason: reason, Path: newPath("client"), Message: "the reader has left: " + cause.Error(), Cause: cause}
}
