package batch

import workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"

// logprobs holds the log-probabilities of the tokens in a mailbox.
type logprobs struct {
	logprobs    []float32
	topIDs      []uint32
	topLogprobs []float32
}

// maxNumbers bounds the log-probabilities of one item, so that a slow reader's is no message that gRPC refuses.
const maxNumbers = 16 << 10

func (l *logprobs) add(p *Logprobs) {
	l.logprobs = append(l.logprobs, p.Token)
	l.topIDs = append(l.topIDs, p.IDs...)
	l.topLogprobs = append(l.topLogprobs, p.Top...)
}

// each is how many of the likeliest there are for a token.
func (l *logprobs) each() int { return len(l.topIDs) / len(l.logprobs) }

// fit returns how many of the first n tokens may be in one item.
func (l *logprobs) fit(n int) int { return min(n, maxNumbers/(1+l.each())) }

// take moves what is known of the first n tokens into an item.
func (l *logprobs) take(item *workerv1.Tokens, n int) {
	top := n * l.each()
	item.Logprobs, l.logprobs = cut(l.logprobs, n)
	item.TopIds, l.topIDs = cut(l.topIDs, top)
	item.TopLogprobs, l.topLogprobs = cut(l.topLogprobs, top)
}

// cut returns a copy of the first n, and the rest, moved to the front.
func cut[T any](all []T, n int) (first, rest []T) {
	return append([]T(nil), all[:n]...), all[:copy(all, all[n:])]
}
