package route

import (
	"context"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
)

// fetchWithin bounds how long a call that the stream has left may wait for its first message, if it
// fetches the prompt that another worker has read. The engine of the other worker keeps blocks
// that are not fetched until its timeout, which is minutes.
const fetchWithin = 5 * time.Second

// An attempt is one worker's part in a stream. Its call runs on a goroutine of its own: the stream
// can leave a hung worker at once, while the call has its grace to deliver the cause.
type attempt struct {
	// Static.
	worker *fleet.Worker
	peer   string            // the worker's name at the time of the choice
	info   *llmv1.WorkerInfo // at the time of the choice
	unread int               // prompt tokens of the worker at the time of the choice, with this prompt
	ended  chan struct{}     // closed when the call is over

	expected int          // prompt tokens expected in the reading worker's cache; -1 if unknown
	found    *uint32      // prompt tokens in the prefill worker's cache; nil without a handover
	charge   fleet.Charge // the stream's load on the worker

	// Set by open.
	stop   func(cause error)
	finish func()
	// fetches: the worker fetches the prompt that another worker has read. The other worker's engine
	// keeps the prompt until then, so the call is not stopped before its first message.
	fetches bool

	// Guarded by the stream's mu.
	moved  func(begun bool) // releases the place among the worker's moved streams; nil if there is none
	heard  bool             // a message has arrived
	over   bool             // the last message has arrived
	closed bool             // the stream accepts no more messages
	cause  error            // of closed; nil after the last message
}

// newAttempt charges the stream to the worker until the attempt ends or is abandoned. expected is
// the number of prompt tokens that are expected in the worker's cache, or -1 if unknown.
func newAttempt(s fleet.Snapshot, prompt, expected int) *attempt {
	return &attempt{
		worker: s.Worker, peer: s.Info.GetInstance(), info: s.Info, unread: int(s.Unread) + prompt - max(0, expected),
		expected: expected, charge: s.Worker.Charge(prompt, max(0, expected)), ended: make(chan struct{}),
	}
}

// abandon takes the stream off a worker that was not called.
func (a *attempt) abandon() {
	a.settle(false)
	a.charge.End()
}

// settle releases the place among the worker's moved streams. begun: it has its next token.
func (a *attempt) settle(begun bool) {
	if a.moved != nil {
		a.moved(begun)
		a.moved = nil
	}
}

// open returns the context of the call, which a stop of ctx's stream stops too, unless the call
// fetches: see drive.halt. to is ended if the call breaks. down is called on its own goroutine when the
// worker becomes unhealthy.
func (a *attempt) open(ctx context.Context, to tokenReader, down func()) context.Context {
	part := stream.WithControl
	if a.fetches {
		part = stream.Detached
	}
	calling, ctl := part(ctx, rpc.DefaultGrace)
	a.stop = ctl.Stop
	ctl.OnBreak(to.End)
	well := a.worker.AfterDown(down)
	a.finish = func() {
		well()
		ctl.Release()
		a.charge.End()
		close(a.ended)
	}
	return calling
}

// complete corrects the worker's usage: prompt tokens that came from a prefill worker count as
// cached only if they were in the cache of that worker.
func (a *attempt) complete(u *llmv1.Usage) {
	if u == nil {
		return
	}
	if a.found != nil && u.CachedTokens != nil {
		u.CachedTokens = new(min(*u.CachedTokens, *a.found))
	}
	if a.expected >= 0 {
		u.ExpectedCachedTokens = new(uint32(a.expected))
	}
}

// isEnded reports whether the call is over.
func (a *attempt) isEnded() bool {
	select {
	case <-a.ended:
		return true
	default:
		return false
	}
}

// isFetching reports whether the call must not be stopped yet.
func (a *attempt) isFetching() bool { return a.fetches && !a.heard && !a.over }

// leave ends the attempt, once, and sends the cause to a worker whose call still runs: at once, or
// when the worker has fetched its prompt. It does not wait.
func (a *attempt) leave(cause error) {
	if a.closed {
		return
	}
	a.closed, a.cause = true, cause
	switch {
	case a.isFetching():
		time.AfterFunc(fetchWithin, func() { a.stop(cause) }) // without effect after the call
	case !a.over:
		a.stop(cause)
	}
	a.settle(false)
}
