// Package likely holds the log-probabilities of an answer, in one form for all servers, until their
// tokens are passed on.
package likely

import (
	"cmp"
	"fmt"
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// impossible stands for a log-probability of -Inf, as in whence.worker.v1.Tokens.
const impossible = -9999

// A Token is a token and its log-probability.
type Token struct {
	ID      uint32
	Logprob float32
}

// A Position holds the log-probabilities at one position of an answer.
type Position struct {
	Token
	// Top has at least as many of the likeliest tokens as were requested, in any order. Token itself
	// may be among them.
	Top []Token
}

// A Queue holds the log-probabilities of tokens that have not been passed on yet: those of a chunk
// and of the one token that the answer may hold back.
type Queue struct {
	each  int             // top tokens per position
	known workerv1.Tokens // without the ids
}

// NewQueue returns the queue of a request, or nil if the request asks for no log-probabilities.
func NewQueue(s *llmv1.Sampling) *Queue {
	if s == nil || s.Logprobs == nil {
		return nil
	}
	return &Queue{each: int(s.GetLogprobs())}
}

// Add appends the log-probabilities of the next ids. A nil queue does nothing.
func (q *Queue) Add(ids []uint32, positions []Position) error {
	if q == nil {
		return nil
	}
	if len(positions) != len(ids) {
		return fmt.Errorf("the server sent log-probabilities of %d tokens with %d tokens", len(positions), len(ids))
	}
	for i, p := range positions {
		if p.ID != ids[i] {
			return fmt.Errorf("the log-probability of token %d came with token %d", p.ID, ids[i])
		}
		if err := q.top(p.Top); err != nil {
			return err
		}
		q.known.Logprobs = append(q.known.Logprobs, max(p.Logprob, impossible))
	}
	return nil
}

// Unknown appends ids whose log-probabilities the server does not report: each gets that of an
// impossible token, and is alone among its likeliest tokens. A nil queue does nothing.
func (q *Queue) Unknown(ids []uint32) {
	if q == nil {
		return
	}
	for _, id := range ids {
		q.known.Logprobs = append(q.known.Logprobs, impossible)
		for range q.each {
			q.known.TopIds, q.known.TopLogprobs = append(q.known.TopIds, id), append(q.known.TopLogprobs, impossible)
		}
	}
}

// top appends the likeliest tokens at one position: likeliest first, ties by lowest id.
func (q *Queue) top(tokens []Token) error {
	if len(tokens) < q.each {
		return fmt.Errorf("the request asked for %d top tokens, and the server sent %d", q.each, len(tokens))
	}
	slices.SortFunc(tokens, func(a, b Token) int { return cmp.Or(cmp.Compare(b.Logprob, a.Logprob), cmp.Compare(a.ID, b.ID)) })
	for _, t := range tokens[:q.each] {
		q.known.TopIds, q.known.TopLogprobs = append(q.known.TopIds, t.ID), append(q.known.TopLogprobs, max(t.Logprob, impossible))
	}
	return nil
}

// Complete sets the log-probabilities of an item's ids, which are the next in the queue. A nil
// queue does nothing.
func (q *Queue) Complete(item *workerv1.Tokens) {
	if q == nil {
		return
	}
	k, n := &q.known, len(item.GetIds())
	item.Logprobs, k.Logprobs = k.Logprobs[:n:n], k.Logprobs[n:]
	n *= q.each
	item.TopIds, k.TopIds = k.TopIds[:n:n], k.TopIds[n:]
	item.TopLogprobs, k.TopLogprobs = k.TopLogprobs[:n:n], k.TopLogprobs[n:]
}
