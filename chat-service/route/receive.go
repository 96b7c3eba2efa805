package route

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/chat-service/route/failover"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/bigstack"
	"github.com/whence-dev/whence/internal/panicvalue"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// This file carries messages through the machine to the reader.

// A reception is the Reader of an attempt's call: it carries the messages to the reader of the stream,
// and holds back the last one.
type reception struct {
	drive   *drive
	attempt *attempt
	last    *workerv1.GenerateResponse // the End; nil if there is none
	over    atomic.Bool                // a call that breaks may end twice
}

// Item implements stream.Reader. It returns false to end the call.
func (r *reception) Item(on *stream.Loop, out *workerv1.GenerateResponse) (more bool) {
	switch {
	case r.last != nil:
		return false // a message after the ending
	case out.GetEnd() != nil:
		r.last = out
		r.drive.ends(r.attempt)
		return true
	default:
		return r.drive.carry(r.attempt, on, out)
	}
}

// End implements stream.Reader: it steps the machine with the last message of the call.
func (r *reception) End(err error) {
	if r.over.Swap(true) {
		return
	}
	d := r.drive
	defer d.pool.calls.Done()
	r.attempt.finish()
	d.watch(func() {
		if failure := stream.FailureOf(err); failure != nil {
			d.failed(r.attempt, failure)
		} else {
			d.conclusion(r.attempt, r.last, err)
		}
	})
}

// ends notes that the last message of an attempt has arrived.
func (d *drive) ends(a *attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !a.closed {
		a.over = true
	}
}

// carry takes a message through the machine to the reader. It returns false to end the call.
func (d *drive) carry(a *attempt, on *stream.Loop, out *workerv1.GenerateResponse) bool {
	now := time.Since(d.began) // the only reading of the clock
	d.mu.Lock()
	defer d.carried(a)
	a.heard = true
	if a.closed {
		a.stop(a.cause) // a call that has fetched its prompt is stopped only now
		return false
	}
	a.charge.Note(out)
	d.now, d.on, d.out, d.carrier = now, on, out, a
	if d.prefill != nil {
		d.step(d.readerMessage(out))
	} else {
		d.step(eventOf(out))
	}
	d.on, d.out, d.carrier = nil, nil, nil
	return !a.closed
}

// carried releases mu. If the reader has panicked, the worker gets the cause first.
func (d *drive) carried(a *attempt) {
	if d.inside && d.carrier == a {
		d.on = nil
		a.leave(d.err)
	}
	if d.endsNow() { // an abandoned call goes on; End may block, and this goroutine may be a Loop
		bigstack.Go(d.close)
	}
}

// eventOf converts a message of the decoding worker to an event.
func eventOf(out *workerv1.GenerateResponse) event {
	switch m := out.GetMessage().(type) {
	case *workerv1.GenerateResponse_Started:
		return event{Kind: failover.Started}
	case *workerv1.GenerateResponse_Tokens:
		return event{Kind: failover.Tokens, N: len(m.Tokens.GetIds())}
	default:
		return event{Kind: failover.Tick} // a message of a newer version
	}
}

// conclusion steps the machine with the last message of a call, unless the stream has left it.
func (d *drive) conclusion(a *attempt, last *workerv1.GenerateResponse, err error) {
	d.mu.Lock()
	defer d.unlock()
	d.callEnded(a)
	if a.closed {
		return
	}
	a.over, d.pending = true, 0 // the end of the call supersedes the events
	a.leave(nil)
	d.now, d.out = time.Since(d.began), last
	switch {
	case d.prefill != nil:
		d.step(d.readerEnded(last, err))
	case last.GetEnd() != nil:
		a.complete(last.GetEnd().GetUsage())
		d.step(event{Kind: failover.Ended})
	default:
		d.step(event{Kind: failover.Fail, Err: err})
	}
}

// callEnded notes that the call of an attempt is over. It reports whether the reader's ending waited for
// it. mu is held.
func (d *drive) callEnded(a *attempt) (awaited bool) {
	if awaited = d.awaited == a; awaited {
		d.awaited = nil
	}
	return awaited
}

// deliver passes on the current message, with at most n of its tokens.
func (d *drive) deliver(n int) {
	if started := d.out.GetStarted(); started != nil {
		started.Worker = d.attempt.peer
	}
	if tokens := d.out.GetTokens(); tokens != nil {
		cut(tokens, n)
		if tokens.CachedTokens != nil && d.attempt.found != nil {
			tokens.CachedTokens = new(min(*tokens.CachedTokens, *d.attempt.found))
		}
		d.answer.Add(tokens.GetIds())
	}
	d.pass(d.out)
}

// pass passes a message to the reader, without holding mu.
func (d *drive) pass(out *workerv1.GenerateResponse) {
	d.inside = true // stays true after a panic
	more := d.unlocked(out)
	d.inside = false
	if more {
		return
	}
	d.left = true
	d.err = streamerr.New(streamerr.Completed, "the reader has what it needs")
	if cause := stream.Cause(d.ctx); cause != nil {
		d.err = cause // the stop made the reader leave
	}
}

func (d *drive) unlocked(out *workerv1.GenerateResponse) bool {
	on := d.on
	d.mu.Unlock()
	defer d.mu.Lock()
	return d.to.Item(on, out)
}

// cut shortens a message to its first n tokens, with their details.
func cut(t *workerv1.Tokens, n int) {
	before := len(t.GetIds())
	if n >= before {
		return
	}
	t.Ids = t.GetIds()[:n]
	t.Logprobs = t.GetLogprobs()[:min(n, len(t.GetLogprobs()))]
	each := len(t.GetTopIds()) / before
	t.TopIds = t.GetTopIds()[:each*n]
	t.TopLogprobs = t.GetTopLogprobs()[:min(each*n, len(t.GetTopLogprobs()))]
}

// finish returns the End of a stream that left its worker after its last allowed token.
func (d *drive) finish() *workerv1.GenerateResponse {
	before := d.req.GetGenerated()
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
		Reason: streamv1.Reason_REASON_COMPLETED, Path: streamerr.NewPath(d.attempt.peer), Finish: llmv1.Finish_FINISH_LENGTH,
		Usage: &llmv1.Usage{PromptTokens: uint32(len(d.req.GetPrompt())) - before, CompletionTokens: before + uint32(d.answer.Len())},
	}}}
}

// failed ends the stream after a panic or an exit of an engine or of the reader. A panic of an
// abandoned call is only logged, unless the reader has a message from that call.
func (d *drive) failed(a *attempt, failure *stream.Failure) {
	d.mu.Lock()
	defer d.unlock()
	if awaited := d.callEnded(a); !awaited && (a.closed && d.carrier != a || d.over) {
		if failure.Value != nil {
			d.pool.opts.Log.LogAttrs(d.ctx, slog.LevelError, "the call of a worker that was left panicked",
				slog.String("stream", stream.ID(d.ctx)), slog.String("hop", d.pool.opts.Self), slog.String("worker", a.peer), slog.String("panic", panicvalue.Text(failure.Value)+"\n"+string(failure.Stack)))
		}
		return
	}
	d.collapse(failure)
}

// collapse ends the stream after a panic or an exit. mu is held.
func (d *drive) collapse(failure *stream.Failure) {
	d.left, d.ending = true, failure
	if !d.over {
		d.end()
	}
}
