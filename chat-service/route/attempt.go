package route

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/whence-dev/whence/chat-service/fleet"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
)

// An attempt is one worker's part in a stream. Its call runs in a goroutine of its own, so that a worker that hangs can be
// left at once, while the call is given the grace to tell it why.
type attempt struct {
	// Static.
	worker   *fleet.Worker
	peer     string            // the worker's name at the time of the choice
	info     *llmv1.WorkerInfo // at the time of the choice
	standing fleet.Standing    // at the time of the choice
	unread   int               // tokens that the worker had to read at the time of the choice, including the stream's prompt
	items    chan item         // bounded: when it is full the call is not read, and gRPC's flow control holds the worker
	left     chan struct{}     // closed by leave: items are no longer read
	ended    chan struct{}     // closed when the call is over

	expected int          // tokens of the prompt that are expected in the cache of the worker that reads it; -1 if unknown
	found    *uint32      // tokens that another worker that has read the prompt had in its cache; nil if the prompt was not handed over
	charge   fleet.Charge // to the worker

	// Set by start.
	stop   func(cause error)
	finish func()
	down   <-chan struct{} // closed when the worker is no longer healthy

	// Owned by the stream's goroutine.
	moved  func() // releases the stream's place among those that have moved there; nil if it has none
	over   bool   // the last item has come
	closed bool   // left is closed
}

// An item is what an engine yields.
type item struct {
	out      *workerv1.GenerateResponse
	err      error
	panicked any // what the engine panicked with, for the stream's goroutine
}

// unread is how many items a call may be ahead of the stream.
const unread = 16

// newAttempt makes the stream one of the worker's, until the attempt has ended or is abandoned. expected is the
// number of prompt tokens that are expected in the worker's cache, or -1 if unknown.
func newAttempt(s fleet.Snapshot, prompt, expected int) *attempt {
	return &attempt{
		worker: s.Worker, peer: s.Info.GetInstance(), info: s.Info, standing: s.Standing, unread: int(s.Unread) + prompt - max(0, expected),
		expected: expected, charge: s.Worker.Charge(prompt, max(0, expected)),
		items: make(chan item, unread), left: make(chan struct{}), ended: make(chan struct{}),
	}
}

// abandon takes a stream off a worker that was not called.
func (a *attempt) abandon() {
	a.settle()
	a.charge.End()
}

// settle releases the stream's place among the streams that have moved to the worker.
func (a *attempt) settle() {
	if a.moved != nil {
		a.moved()
		a.moved = nil
	}
}

// start opens the call, one of calls. A stop of ctx's stream reaches it with its cause.
func (a *attempt) start(ctx context.Context, calls *sync.WaitGroup, req *workerv1.TokenRequest) {
	calling, ctl := stream.WithControl(ctx, rpc.DefaultGrace)
	undo := stream.AfterStop(ctx, ctl.Stop)
	a.stop, a.down = ctl.Stop, a.worker.Down()
	a.finish = func() {
		undo()
		ctl.Release()
		a.charge.End()
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

// complete corrects the worker's usage. Tokens that came from another worker were in no cache before, though the
// engine finds them in its cache.
func (a *attempt) complete(u *llmv1.Usage) {
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

// leave ends the attempt, once. If its call still runs, the worker is told the cause. leave does not wait.
func (a *attempt) leave(cause error) {
	if a.closed {
		return
	}
	a.closed = true
	if !a.over {
		a.stop(cause)
	}
	a.settle()
	close(a.left)
}
