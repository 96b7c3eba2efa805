package batch

import (
	"sync"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// A mailbox holds the output that one reader has not taken yet. Put never blocks, so a slow reader
// never slows the batch: it gets fewer, larger items. No token is dropped. A reader that leaves
// more than limit tokens unread ends with SLOW_READER.
type mailbox struct {
	ready chan struct{} // capacity 1: there is output to take
	limit int           // tokens

	mu     sync.Mutex // guards the following fields
	unread []uint32
	likely logprobs                 // of unread, if the request asks for log-probabilities
	begun  bool                     // a token has been put
	cached *uint32                  // prompt tokens found in the KV cache; sent with the next tokens
	prompt *workerv1.PromptLogprobs // sent with the next tokens, or with the end
	over   string                   // the handover, which replaces tokens
	end    *llmv1.End
	err    error
}

func newMailbox(limit int) *mailbox {
	return &mailbox{ready: make(chan struct{}, 1), limit: limit}
}

// put adds a token. It reports false if the mailbox is full.
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

// score puts the log-probabilities of the prompt.
func (b *mailbox) score(prompt *workerv1.PromptLogprobs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prompt = prompt
}

// scores takes the log-probabilities of the prompt that no tokens have taken, or nil.
func (b *mailbox) scores() *workerv1.PromptLogprobs {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.prompt
}

// hand puts the handover. A stream with a handover has no tokens.
func (b *mailbox) hand(over string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = over
}

// close sets the ending of the stream. Unread output is still delivered first. Only the first close
// counts.
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

// take empties the mailbox: it returns tokens or the handover. end and err are nil until the stream
// has ended.
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
		tokens.Prompt, b.prompt = b.prompt, nil
	}
	if len(b.unread) > 0 { // the ending follows the rest
		b.poke()
		return tokens, nil, nil
	}
	return tokens, b.end, b.err
}

// newTokens returns a message with a copy of ids, in one allocation if possible, because it runs
// once per token.
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
