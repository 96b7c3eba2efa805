package rpc

import (
	"context"
	"errors"
	"flag"
	"iter"
	"time"

	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Timers bound how long the streams of a hop may take; 0 is no bound. Each ends the stream with DEADLINE, and says which
// timer of which hop has fired. Inner hops should be less patient than outer ones, so that the one nearest to the fault
// speaks.
type Timers struct {
	// Deadline bounds the whole stream.
	Deadline time.Duration
	// FirstToken bounds the time from the request to the first token, the wait in the queue included.
	FirstToken time.Duration
	// Stall bounds the time between two items from below, once there was a token.
	Stall time.Duration
}

// Flags adds the flags of t to fs, with the values of t as defaults.
func (t *Timers) Flags(fs *flag.FlagSet) {
	fs.DurationVar(&t.Deadline, "deadline", t.Deadline, "how long a stream may take; 0 for no limit")
	fs.DurationVar(&t.FirstToken, "first-token-timeout", t.FirstToken, "how long a stream may wait for its first token; 0 for no limit")
	fs.DurationVar(&t.Stall, "stall-timeout", t.Stall, "how long a stream may go without a token; 0 for no limit")
}

// Validate reports what is wrong with t.
func (t *Timers) Validate() error {
	if t.Deadline < 0 || t.FirstToken < 0 || t.Stall < 0 {
		return errors.New("--deadline, --first-token-timeout and --stall-timeout must not be negative")
	}
	return nil
}

// A watch is the timers of one stream. All but the functions of its timers belong to the goroutine that ranges over the engine.
type watch struct {
	hop      string
	ctl      *stream.Control
	stall    time.Duration
	deadline *time.Timer
	next     *time.Timer // of the first token, then of the next item
	begun    bool        // there was a token
}

// watch begins the timers of a stream.
func (t *Timers) watch(ctx context.Context, hop string) *watch {
	w := &watch{hop: hop, ctl: stream.ControlOf(ctx), stall: t.Stall}
	asked, _ := ctx.Value(deadlineKey{}).(time.Duration)
	w.deadline = w.after(shortest(t.Deadline, asked), "deadline", "the stream has taken longer than")
	w.next = w.after(t.FirstToken, "first-token timeout", "there was no token within")
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
					timers.item(m.Tokens(out))
				}
				if !yield(out, err) {
					return
				}
			}
		}
	}
}

// after stops the stream after d, if d is a bound.
func (w *watch) after(d time.Duration, timer, what string) *time.Timer {
	if d <= 0 {
		return nil
	}
	return time.AfterFunc(d, func() {
		w.ctl.Stop(streamerr.New(streamerr.Deadline, "%s %v (%s of %s)", what, d, timer, w.hop))
	})
}

// item notes that an item with so many tokens has come.
func (w *watch) item(tokens int) {
	switch {
	case w.begun:
		if w.next != nil {
			w.next.Reset(w.stall)
		}
	case tokens > 0:
		w.begun = true
		stop(w.next)
		w.next = w.after(w.stall, "stall timeout", "there was no token for")
	}
}

// end stops the timers.
func (w *watch) end() {
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
