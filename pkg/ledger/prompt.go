package ledger

import (
	"context"
	"sync/atomic"
)

// A Prompt is one prompt of a stream, as a hop sends it to engines. All answers to the prompt share
// it, so that the prompt counts once.
type Prompt struct {
	Tokens int
	sent   atomic.Bool
}

type promptKey struct{}

// WithPrompt returns a context for the calls that send p.
func WithPrompt(ctx context.Context, p *Prompt) context.Context {
	return context.WithValue(ctx, promptKey{}, p)
}

// SendsPrompt records that the hop calls a worker with the prompt of ctx. If the stream is stopped
// during a call, and before a worker has admitted it, the prompts sent count as its prompt: workers
// may have read them. Prompts of calls that failed do not count.
func SendsPrompt(ctx context.Context) {
	p, _ := ctx.Value(promptKey{}).(*Prompt)
	r := Of(ctx)
	if p == nil || r == nil || p.sent.Swap(true) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sendsPrompts = true
	r.sentPrompt += uint32(p.Tokens)
}

// stoppedInCall counts the prompts of the open calls of a stream that is being stopped. mu is held.
func (r *Record) stoppedInCall() {
	if r.calls > 0 && !r.admitted {
		r.prompt = max(r.prompt, r.turnsPrompt+r.sentPrompt)
	}
}

// Consumed implements observer.Flow: it returns the number of tokens of the prompt.
func (r *Record) Consumed() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return int(r.prompt)
}

// consumedBelow records the number of tokens of the prompt that the hop below has counted, at the
// end of its call. It has no effect after an admission, which has told the number. It has no effect
// on a hop that counts the prompts that it sends, because several calls may send the same prompt.
func (r *Record) consumedBelow(tokens int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.admitted && !r.sendsPrompts {
		r.prompt = max(r.prompt, uint32(tokens))
	}
}
