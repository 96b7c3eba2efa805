package route

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
)

// An attempt is one worker's part in a stream. Its call runs in a goroutine of its own, so that a worker that hangs can be
// left at once, while the call is given the grace to tell it why.
type attempt struct {
	// Static.
	worker *fleet.Worker
	peer   string                 // the worker's name when it was chosen
	info   *workerv1.InfoResponse // likewise
	items  chan item              // bounded: when it is full the call is not read, and gRPC's flow control holds the worker
	left   chan struct{}          // closed by leave: nobody reads items any more
	ended  chan struct{}          // closed when the call is over

	expected int          // tokens of the prompt that were expected in the cache of who reads it; -1 where nobody expected anything
	found    *uint32      // of another worker that has read it, how many it found; nil where the prompt was not handed over
	charge   fleet.Charge // to the worker

	// Set by start.
	stop   func(cause error)
	finish func()

	// Owned by the stream's goroutine.
	admitted bool // Started has come
	flowing  bool // a token has come
	over     bool // the last item has come
}

// An item is what an engine yields.
type item struct {
	out      *workerv1.GenerateResponse
	err      error
	panicked any // what the engine panicked with, for the stream's goroutine
}

// unread is how many items a call may be ahead of the stream.
const unread = 16

// newAttempt makes the stream one of the worker's, until the attempt has ended or is abandoned. Of its prompt so many tokens are
// expected in the worker's cache, or -1.
func newAttempt(w *fleet.Worker, info *workerv1.InfoResponse, prompt, expected int) *attempt {
	return &attempt{
		worker: w, peer: info.GetInstance(), info: info, expected: expected, charge: w.Charge(prompt, max(0, expected)),
		items: make(chan item, unread), left: make(chan struct{}), ended: make(chan struct{}),
	}
}

// abandon takes the stream off the worker.
func (a *attempt) abandon() { a.charge.End() }

// start opens the call, one of calls. A stop of ctx's stream reaches it with its cause.
func (a *attempt) start(ctx context.Context, calls *sync.WaitGroup, req *workerv1.TokenRequest) {
	calling, ctl := stream.WithControl(ctx, rpc.DefaultGrace)
	undo := stream.AfterStop(ctx, ctl.Stop)
	a.stop = ctl.Stop
	a.finish = func() {
		undo()
		ctl.Release()
		a.abandon()
		close(a.ended)
	}
	calls.Go(func() { a.run(calling, req) })
}

// run hands on what the worker sends.
func (a *attempt) run(ctx context.Context, req *workerv1.TokenRequest) {
	defer a.finish()
	defer close(a.items)
	defer func() {
		if v := recover(); v != nil {
			a.put(item{panicked: fmt.Sprintf("%v\n%s", v, debug.Stack())})
		}
	}()
	for out, err := range a.worker.Engine(a.peer)(ctx, req) {
		a.charge.Note(out)
		if !a.put(item{out: out, err: err}) {
			return
		}
	}
}

// put reports false when nobody reads any more.
func (a *attempt) put(it item) bool {
	select {
	case a.items <- it:
		return true
	case <-a.left:
		return false
	}
}

// next returns the next item. ok is false if none has come within the timer's time.
func (a *attempt) next(timer *time.Timer, within time.Duration) (it item, ok bool) {
	select {
	case it = <-a.items:
		return it, true
	default:
	}
	if within <= 0 {
		return <-a.items, true
	}
	timer.Reset(within)
	select {
	case it = <-a.items:
		timer.Stop()
		return it, true
	case <-timer.C:
		return it, false
	}
}

// settle completes what the worker says was used. What has come from another worker was in nobody's cache before, though the engine
// finds it there.
func (a *attempt) settle(u *streamv1.Usage) {
	if u == nil {
		return
	}
	if a.found != nil {
		u.CachedTokens = min(u.GetCachedTokens(), *a.found)
	}
	if a.expected >= 0 {
		u.ExpectedCachedTokens = new(uint32(a.expected))
	}
}

// leave ends the attempt if it still runs: the worker is told the cause. It does not wait.
func (a *attempt) leave(cause error) {
	if !a.over {
		a.stop(cause)
	}
	close(a.left)
}
