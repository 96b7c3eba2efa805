// Package likely reads the log-probabilities of completions whose tokens are written as ids, as
// vLLM does on request (return_tokens_as_token_ids).
package likely

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// Logprobs are the log-probabilities of a chunk's tokens.
type Logprobs struct {
	Tokens []string             `json:"tokens"`
	Likely []float32            `json:"token_logprobs"`
	Top    []map[string]float32 `json:"top_logprobs"` // the token itself may be one more
}

// A Queue holds the log-probabilities of tokens that have not been passed on yet: those of a chunk
// and of the one token that the answer may hold back.
type Queue struct {
	each  int
	known workerv1.Tokens // without the ids
}

// NewQueue returns the queue of a request, or nil if the request asks for no log-probabilities.
func NewQueue(s *llmv1.Sampling) *Queue {
	if s == nil || s.Logprobs == nil {
		return nil
	}
	return &Queue{each: int(s.GetLogprobs())}
}

// Add appends the log-probabilities of the next ids.
func (q *Queue) Add(l *Logprobs, ids []uint32) error {
	if l == nil || len(l.Tokens) != len(ids) || len(l.Likely) != len(ids) || q.each > 0 && len(l.Top) != len(ids) {
		return fmt.Errorf("the number of logprobs differs from the number of tokens, %d", len(ids))
	}
	for i, id := range ids {
		if named, err := parse(l.Tokens[i]); err != nil || named != id {
			return fmt.Errorf("logprobs of %.32q came with token %d", l.Tokens[i], id)
		}
		q.known.Logprobs = append(q.known.Logprobs, l.Likely[i])
		if q.each == 0 {
			continue
		}
		if err := q.top(l.Top[i]); err != nil {
			return err
		}
	}
	return nil
}

// top appends the most likely tokens at one position.
func (q *Queue) top(named map[string]float32) error {
	if len(named) < q.each {
		return fmt.Errorf("the request asked for %d top tokens, and the server sent %d", q.each, len(named))
	}
	type token struct {
		id     uint32
		likely float32
	}
	all := make([]token, 0, len(named))
	for name, likely := range named {
		id, err := parse(name)
		if err != nil {
			return fmt.Errorf("logprobs of %.32q: %w", name, err)
		}
		all = append(all, token{id, likely})
	}
	slices.SortFunc(all, func(a, b token) int {
		return cmp.Or(cmp.Compare(b.likely, a.likely), cmp.Compare(a.id, b.id))
	})
	for _, t := range all[:q.each] {
		q.known.TopIds, q.known.TopLogprobs = append(q.known.TopIds, t.id), append(q.known.TopLogprobs, t.likely)
	}
	return nil
}

// parse reads "token_id:5".
func parse(token string) (uint32, error) {
	digits, ok := strings.CutPrefix(token, "token_id:")
	if !ok {
		return 0, fmt.Errorf("%.32q is not a token id", token)
	}
	id, err := strconv.ParseUint(digits, 10, 32)
	return uint32(id), err
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
