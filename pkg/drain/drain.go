// Package drain has the order to end a process, in two steps. The first step lets the live streams
// finish within a grace, which all services of the process count from the same moment. The second
// step ends the streams at once.
//
// The order travels in the context of the services: the context ends with the first step, and keeps
// the order as a value.
package drain

import (
	"context"
	"sync"
	"time"
)

// KillAfter is the time in which a stream must deliver its ending after the second step. Then the
// stream is killed.
const KillAfter = 100 * time.Millisecond

// hurriedGoodbye bounds the wait, after the second step, for connections whose streams have ended.
const hurriedGoodbye = 30 * time.Millisecond

// An Order ends a process. All methods are safe for concurrent use.
type Order struct {
	end     context.CancelCauseFunc
	hurried chan struct{}

	mu     sync.Mutex // guards the following fields
	begun  time.Time  // when the first step was taken; zero before that
	urgent bool       // the second step was taken
}

type orderKey struct{}

// New returns a context that ends with the first step of the returned Order.
func New(parent context.Context) (context.Context, *Order) {
	ctx, end := context.WithCancelCause(parent)
	o := &Order{end: end, hurried: make(chan struct{})}
	return context.WithValue(ctx, orderKey{}, o), o
}

// Begin takes the first step: the context ends with cause.
func (o *Order) Begin(cause error) {
	o.mu.Lock()
	if o.begun.IsZero() {
		o.begun = time.Now()
	}
	o.mu.Unlock()
	o.end(cause)
}

// Hurry takes the second step. Begin must have been called.
func (o *Order) Hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.urgent {
		o.urgent = true
		close(o.hurried)
	}
}

func (o *Order) since() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.begun
}

// Hurried returns a channel that is closed by the second step of the order in ctx. Without an order
// it returns nil.
func Hurried(ctx context.Context) <-chan struct{} {
	if o, ok := ctx.Value(orderKey{}).(*Order); ok {
		return o.hurried
	}
	return nil
}

// Within returns a context for a service that drains. The context ends grace after the first step
// of the order in ctx, and at once with the second step. Without an order, or before its first
// step, the grace begins now. The context does not end with ctx.
func Within(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	deadline := time.Now().Add(grace)
	o, ordered := ctx.Value(orderKey{}).(*Order)
	if ordered {
		if begun := o.since(); !begun.IsZero() {
			deadline = begun.Add(grace)
		}
	}
	within, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	if ordered {
		go func() { // ends with within
			select {
			case <-o.hurried:
				cancel()
			case <-within.Done():
			}
		}()
	}
	return within, cancel
}

// Goodbye returns how long connections without streams may take to close: d, or hurriedGoodbye
// after the second step.
func Goodbye(ctx context.Context, d time.Duration) time.Duration {
	select {
	case <-Hurried(ctx):
		return min(d, hurriedGoodbye)
	default:
		return d
	}
}

// hurriedTurn is how long, after the second step, a service waits for the service before it. It is
// long enough for that service's stops to arrive, so that all hops report the same origin.
const hurriedTurn = 50 * time.Millisecond

// After returns a context for a service that drains after another service of the process. The
// context ends, with ctx's cause, when ctx has ended and before is closed. After the second step,
// it waits at most hurriedTurn for before. The context carries the order in ctx.
func After(ctx context.Context, before <-chan struct{}) context.Context {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		defer func() { cancel(context.Cause(ctx)) }()
		select {
		case <-before:
			return
		case <-Hurried(ctx):
		}
		select {
		case <-before:
		case <-time.After(hurriedTurn):
		}
	})
	return late
}
