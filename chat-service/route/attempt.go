package route

import (
	"context"

	"github.com/whence-dev/whence/chat-service/fleet"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/stream"
)

// An attempt is one worker's part in a stream. Its call begins and ends on a goroutine of its own, so that a worker that hangs can
// be left at once, while the call is given the grace to tell it why.
type attempt struct {
	// Static.
	worker *fleet.Worker
	peer   string            // the worker's name at the time of the choice
	info   *llmv1.WorkerInfo // at the time of the choice
	unread int               // tokens that the worker had to read at the time of the choice, including the stream's prompt
	ended  chan struct{}     // closed when the call is over

	expected int          // tokens of the prompt that are expected in the cache of the worker that reads it; -1 if unknown
	found    *uint32      // tokens that another worker that has read the prompt had in its cache; nil if the prompt was not handed over
	charge   fleet.Charge // to the worker

	// Set by open.
	stop   func(cause error)
	finish func()
	own    *loop.Carrier // of the call; nil if no Loop carries the stream
	whole  *loop.Carrier // of the stream

	// Guarded by the stream's mu.
	moved  func() // releases the stream's place among those that have moved there; nil if it has none
	over   bool   // the last message has come
	closed bool   // the stream takes no more messages
	behind bool   // the stream goes on, or ends, without waiting for the end of the call
}

// newAttempt makes the stream one of the worker's, until the attempt has ended or is abandoned. expected is the
// number of prompt tokens that are expected in the worker's cache, or -1 if unknown.
func newAttempt(s fleet.Snapshot, prompt, expected int) *attempt {
	return &attempt{
		worker: s.Worker, peer: s.Info.GetInstance(), info: s.Info, unread: int(s.Unread) + prompt - max(0, expected),
		expected: expected, charge: s.Worker.Charge(prompt, max(0, expected)), ended: make(chan struct{}),
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

// open returns the context of the attempt's call. A stop of ctx's stream reaches the call with its cause. down is called on a
// goroutine of its own when the worker is no longer healthy.
func (a *attempt) open(ctx context.Context, down func()) context.Context {
	calling, ctl := stream.WithControl(context.WithoutCancel(ctx), rpc.DefaultGrace)
	undo := stream.AfterStop(ctx, ctl.Stop)
	a.stop = ctl.Stop
	well := a.worker.AfterDown(down)
	if a.whole = loop.Of(ctx); a.whole != nil { // a call that was left may still have messages
		a.own = &loop.Carrier{}
		calling = loop.With(calling, a.own)
	}
	a.finish = func() {
		undo()
		well()
		ctl.Release()
		a.charge.End()
		close(a.ended)
	}
	return calling
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
}
