package route

import (
	"time"

	"github.com/whence-dev/whence/chat-service/route/failover"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// This file waits for a drive's next event, and turns a worker's messages into events.

// running returns the attempt whose items the drive waits for; nil while the stream waits for its turn.
func (d *drive) running() *attempt {
	switch {
	case d.reading != nil && !d.reading.attempt.closed:
		return d.reading.attempt
	case d.attempt != nil && !d.attempt.closed:
		return d.attempt
	default:
		return nil
	}
}

// wait returns the next event.
func (d *drive) wait() event {
	a := d.running()
	var items <-chan item
	var stopping, down <-chan struct{}
	if a == nil {
		if d.stopping == nil {
			d.stopping = stream.Stopping(d.ctx)
		}
		stopping = d.stopping // the call of an attempt watches for a stop itself
	} else {
		select {
		case it := <-a.items:
			return d.received(a, it)
		default:
		}
		items = a.items
		if d.ill != a && d.machine.Undelivered() {
			down = a.down
		}
	}
	select {
	case it := <-items:
		return d.received(a, it)
	case <-d.alarm():
		d.armed = time.Time{}
		return event{Kind: failover.Tick}
	case <-down:
		d.ill = a
		return event{Kind: failover.Down}
	case <-d.turn.ready:
		return event{Kind: failover.Turn}
	case <-stopping:
		return event{Kind: failover.Tick}
	}
}

// alarm returns a channel that is ready at or before the machine's next Wake. It is armed again only for an earlier
// time, so that tokens cost no timer.
func (d *drive) alarm() <-chan time.Time {
	wake := d.machine.Wake()
	if wake == 0 {
		return nil
	}
	at := d.began.Add(wake)
	if d.armed.IsZero() || at.Before(d.armed) {
		d.armed = at
		d.timer.Reset(time.Until(at))
	}
	return d.timer.C
}

// received returns the event that an item is.
func (d *drive) received(a *attempt, it item) event {
	d.it = it
	if it.panicked != nil {
		a.end()
		panic(it.panicked)
	}
	if it.out == nil { // the last item, or none
		a.end()
		if d.reading != nil {
			return d.unread(it.err)
		}
		return event{Kind: failover.Fail, Err: it.err}
	}
	if d.reading != nil {
		return d.heard(it.out)
	}
	switch m := it.out.GetMessage().(type) {
	case *workerv1.GenerateResponse_Started:
		return event{Kind: failover.Started}
	case *workerv1.GenerateResponse_Tokens:
		return event{Kind: failover.Tokens, N: len(m.Tokens.GetIds())}
	case *workerv1.GenerateResponse_End:
		a.complete(m.End.GetUsage())
		a.end()
		return event{Kind: failover.Ended}
	default:
		return event{Kind: failover.Tick} // a message of a later version
	}
}

// end waits for the end of a call after its last item.
func (a *attempt) end() {
	a.over = true
	a.leave(nil)
	<-a.ended
}

// deliver passes on the item that came last, and n tokens of it if it has tokens.
func (d *drive) deliver(n int) {
	out := d.it.out
	if tokens := out.GetTokens(); tokens != nil {
		cut(tokens, n)
		if tokens.CachedTokens != nil && d.attempt.found != nil {
			tokens.CachedTokens = new(min(*tokens.CachedTokens, *d.attempt.found))
		}
		d.answer = append(d.answer, tokens.GetIds()...)
	}
	d.pass(out, nil)
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
		Usage: &llmv1.Usage{PromptTokens: uint32(len(d.req.GetPrompt())) - before, CompletionTokens: before + uint32(len(d.answer))},
	}}}
}
