package rpc

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Timers bound how long the streams of a hop may take; 0 is no bound. Each ends the stream with DEADLINE, and says which
// timer of which hop has fired. Inner hops should be less patient than outer ones, so that the one nearest to the fault
// speaks. A stall while an item waits for a caller that does not read is that caller's, and ends with SLOW_READER.
type Timers struct {
	// Deadline bounds the whole stream.
	Deadline time.Duration
	// FirstToken bounds the time from the request to the first token, the wait in the queue included.
	FirstToken time.Duration
	// Stall bounds the time between two items from below, once there was a token.
	Stall time.Duration
	// Idle bounds how long a stream may wait for its caller's next message, which no other timer but Deadline counts.
	Idle time.Duration
}

// Validate reports what is wrong with t.
func (t *Timers) Validate() error {
	if t.Deadline < 0 || t.FirstToken < 0 || t.Stall < 0 || t.Idle < 0 {
		return errors.New("--deadline, --first-token-timeout, --stall-timeout and --idle-timeout must not be negative")
	}
	return nil
}

// A watch is the timers of one stream. All but the functions of its timers belong to the goroutine that ranges over the engine.
type watch struct {
	name     string // whose timers they are
	timers   Timers
	hop      *Hop // nil for those of one of several engines of a hop
	ctl      *stream.Control
	deadline *time.Timer
	next     *time.Timer // of the first token, then of the next item; of the caller while the stream waits for it
	begun    bool        // there was a token since the caller's last message
	idle     time.Time   // since when the stream waits for its caller; zero while it does not

	passing atomic.Bool // the item that came last is on its way up
}

// watch begins the timers of a stream.
func (t *Timers) watch(ctx context.Context, name string) *watch {
	w := &watch{name: name, timers: *t, ctl: stream.ControlOf(ctx)}
	asked, _ := ctx.Value(deadlineKey{}).(time.Duration)
	w.deadline = w.after(shortest(t.Deadline, asked), "deadline", "the stream has taken longer than")
	w.next = w.firstToken()
	return w
}

// watch begins the timers of a stream, which may come to wait for its caller.
func (h *Hop) watch(ctx context.Context) *watch {
	w := h.Timers.watch(ctx, h.Name)
	w.hop = h
	w.ctl.OnIdle(func(idle bool) { w.wait(ctx, idle) })
	return w
}

// Bound returns next with timers of its own, beside those of the hop of that name: for one of several engines of a hop.
func Bound[Req, In, Out any](hop string, t Timers, m *Method[Req, In, Out], next stream.Engine[Req, *Out]) stream.Engine[Req, *Out] {
	return func(ctx context.Context, req Req) iter.Seq2[*Out, error] {
		return func(yield func(*Out, error) bool) {
			timers := t.watch(ctx, hop)
			defer timers.end()
			for out, err := range next(ctx, req) {
				if err == nil {
					timers.item(m.tokens(out))
				}
				timers.passing.Store(true)
				more := yield(out, err)
				timers.passing.Store(false)
				if !more {
					return
				}
			}
		}
	}
}

func (w *watch) firstToken() *time.Timer {
	return w.after(w.timers.FirstToken, "first-token timeout", "there was no token within")
}

// wait notes that the stream begins to wait for its caller, or that this is over: what follows is timed as if the stream had
// just begun. A hop that shuts down does not let it wait.
func (w *watch) wait(ctx context.Context, idle bool) {
	stop(w.next)
	if !idle {
		observer.Of(ctx).Note(observer.Event{Kind: observer.Waited, Took: time.Since(w.idle)})
		w.begun, w.next = false, w.firstToken()
		return
	}
	w.idle = time.Now()
	w.next = w.after(w.timers.Idle, "idle timeout", "the caller sent nothing for")
	if w.hop.Live.Closed() {
		w.ctl.Stop(w.hop.draining())
	}
}

// after stops the stream after d, if d is a bound.
func (w *watch) after(d time.Duration, timer, what string) *time.Timer {
	if d <= 0 {
		return nil
	}
	return time.AfterFunc(d, func() {
		w.ctl.Stop(streamerr.New(streamerr.Deadline, "%s %v (%s of %s)", what, d, timer, w.name))
	})
}

// stall stops the stream where no item follows the last one, by the fault of whoever holds it up.
func (w *watch) stall() *time.Timer {
	d := w.timers.Stall
	if d <= 0 {
		return nil
	}
	return time.AfterFunc(d, func() {
		cause := streamerr.New(streamerr.Deadline, "there was no token for %v (stall timeout of %s)", d, w.name)
		if w.passing.Load() {
			cause = streamerr.New(streamerr.SlowReader, "the caller has read nothing for %v (stall timeout of %s)", d, w.name)
		}
		w.ctl.Stop(cause)
	})
}

// item notes that an item with so many tokens has come.
func (w *watch) item(tokens int) {
	switch {
	case w.begun:
		if w.next != nil {
			w.next.Reset(w.timers.Stall)
		}
	case tokens > 0:
		w.begun = true
		stop(w.next)
		w.next = w.stall()
	}
}

// end stops the timers.
func (w *watch) end() {
	if w.hop != nil {
		w.ctl.OnIdle(nil)
	}
	stop(w.deadline)
	stop(w.next)
}

func stop(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

type deadlineKey struct{}

// WithDeadline returns a context whose stream may take at most d, beside what its hop allows.
func WithDeadline(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, deadlineKey{}, d)
}

// shortest returns the smaller of two bounds, of which 0 is none.
func shortest(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}
