package batch

import (
	"sync"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// A mailbox holds what one reader has not taken yet. Put never blocks, so a slow reader never slows the batch: it gets
// fewer, larger items. No token is dropped; a reader that leaves more than limit tokens unread is too slow to serve.
type mailbox struct {
	ready chan struct{} // capacity 1: something can be taken
	limit int           // tokens

	mu     sync.Mutex // guards the following fields
	unread []uint32
	likely logprobs // of unread, if the request asks for it
	begun  bool     // a token was put
	cached *uint32  // tokens of the prompt; to be told with the next ones
	over   string   // what is handed over, in the place of tokens
	end    *llmv1.End
	err    error
}

func newMailbox(limit int) *mailbox {
	return &mailbox{ready: make(chan struct{}, 1), limit: limit}
}

// put adds a token; it reports false when the mailbox is full.
func (b *mailbox) put(out Output) bool {
	b.mu.Lock()
	full := len(b.unread) >= b.limit
	if !b.begun {
		b.begun, b.cached = true, new(out.Cached)
	}
	if !full {
		b.unread = append(b.unread, out.Token)
		if out.Logprobs != nil {
			b.likely.add(out.Logprobs)
		}
	}
	b.mu.Unlock()
	b.poke()
	return !full
}

// hand puts what is handed over. There are no tokens before it or behind it.
func (b *mailbox) hand(over string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = over
}

// close says how the stream ended. What is unread is still delivered first. The first close counts.
func (b *mailbox) close(end *llmv1.End, err error) {
	b.mu.Lock()
	if b.end == nil && b.err == nil {
		b.end, b.err = end, err
	}
	b.mu.Unlock()
	b.poke()
}

func (b *mailbox) poke() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take empties the mailbox: tokens, or what is handed over. end and err are nil while the stream goes on.
func (b *mailbox) take() (tokens *workerv1.GenerateResponse, end *llmv1.End, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over != "":
		tokens = &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Handover{Handover: &workerv1.Handover{Parameters: []byte(b.over)}}}
		b.over = ""
	case len(b.unread) == 0:
	case len(b.likely.logprobs) == 0:
		tokens = newTokens(b.unread)
		b.unread = b.unread[:0]
	default:
		n := b.likely.fit(len(b.unread))
		tokens = newTokens(b.unread[:n])
		b.likely.take(tokens.GetTokens(), n)
		b.unread = b.unread[:copy(b.unread, b.unread[n:])]
	}
	if t := tokens.GetTokens(); t != nil {
		t.CachedTokens, b.cached = b.cached, nil
	}
	if len(b.unread) > 0 { // the ending comes behind the rest
		b.poke()
		return tokens, nil, nil
	}
	return tokens, b.end, b.err
}

// newTokens makes a message of a copy of ids, in one allocation where it can: this runs once per token.
func newTokens(ids []uint32) *workerv1.GenerateResponse {
	m := new(struct {
		resp   workerv1.GenerateResponse
		oneof  workerv1.GenerateResponse_Tokens
		tokens workerv1.Tokens
		few    [4]uint32
	})
	m.tokens.Ids = append(m.few[:0], ids...)
	m.oneof.Tokens = &m.tokens
	m.resp.Message = &m.oneof
	return &m.resp
}
