package likely

import (
	"fmt"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// A Prompt collects the log-probabilities of a prompt's tokens, which come before those of the answer.
type Prompt struct {
	queue *Queue
	size  int      // tokens of the prompt
	ids   []uint32 // whose log-probabilities have not come
}

// NewPrompt returns the Prompt of a request, or nil if the request does not ask for the log-probabilities of
// its prompt. An answer that continues another one has none.
func NewPrompt(req *workerv1.TokenRequest) *Prompt {
	if !req.GetSampling().GetPromptLogprobs() || req.GetGenerated() > 0 {
		return nil
	}
	return &Prompt{queue: NewQueue(req.GetSampling()), size: len(req.GetPrompt()), ids: req.GetPrompt()}
}

// Add takes the log-probabilities of the prompt's next tokens, and returns those that are left for the
// answer. The number beside the first token of a prompt means nothing. A nil Prompt takes none.
func (p *Prompt) Add(positions []Position) (rest []Position, err error) {
	if p == nil || len(p.ids) == 0 {
		return positions, nil
	}
	n := min(len(positions), len(p.ids))
	ids, known := p.ids[:n], positions[:n]
	if n > 0 && len(p.ids) == p.size {
		if known[0].ID != ids[0] {
			return nil, fmt.Errorf("the prompt begins with token %d, and its log-probabilities with token %d", ids[0], known[0].ID)
		}
		ids, known = ids[1:], known[1:]
	}
	p.ids = p.ids[n:]
	return positions[n:], p.queue.Add(ids, known)
}

// Check returns an error if the answer begins before the log-probabilities of the whole prompt have come.
func (p *Prompt) Check() error {
	if p != nil && len(p.ids) > 0 {
		return fmt.Errorf("the server sent log-probabilities of %d of the prompt's %d tokens", p.size-len(p.ids), p.size)
	}
	return nil
}

// Take returns all of them, once; then, and for a nil Prompt, nil.
func (p *Prompt) Take() *workerv1.PromptLogprobs {
	if p == nil || p.queue == nil {
		return nil
	}
	known := &p.queue.known
	p.queue = nil
	return &workerv1.PromptLogprobs{Logprobs: known.GetLogprobs(), TopIds: known.GetTopIds(), TopLogprobs: known.GetTopLogprobs()}
}
