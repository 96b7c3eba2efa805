package batch

import workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"

// logprobs holds the log-probabilities of the tokens in a mailbox.
type logprobs struct {
	logprobs    []float32
	topIDs      []uint32
	topLogprobs []float32
}

// maxNumbers bounds the log-probabilities of one item, so that the merged item of a slow reader
// does not exceed gRPC's message limit.
const maxNumbers = 16 << 10

func (l *logprobs) add(p *Logprobs) {
	l.logprobs = append(l.logprobs, p.Token)
	l.topIDs = append(l.topIDs, p.IDs...)
	l.topLogprobs = append(l.topLogprobs, p.Top...)
}

// each returns the number of top alternatives per token.
func (l *logprobs) each() int { return len(l.topIDs) / len(l.logprobs) }

// fit returns how many of the first n tokens fit into one item.
func (l *logprobs) fit(n int) int { return min(n, maxNumbers/(1+l.each())) }

// take moves the log-probabilities of the first n tokens into an item.
func (l *logprobs) take(item *workerv1.Tokens, n int) {
	top := n * l.each()
	item.Logprobs, l.logprobs = cut(l.logprobs, n)
	item.TopIds, l.topIDs = cut(l.topIDs, top)
	item.TopLogprobs, l.topLogprobs = cut(l.topLogprobs, top)
}

// cut returns a copy of the first n elements, and the rest moved to the front.
func cut[T any](all []T, n int) (first, rest []T) {
	return append([]T(nil), all[:n]...), all[:copy(all, all[n:])]
}
