package converse

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/whence-dev/whence/api-service/quota"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// In this file each turn of a conversation is a request of its own: its caller is identified again,
// and its limits are checked and charged.

// turns is the state of a conversation's turns.
type turns struct {
	conversation context.Context //nolint:containedctx // of the request that opened the WebSocket, with its caller
	key          string          // the header that names the caller
	grant        *quota.Grant    // nil without limits

	mu    sync.Mutex       // guards the following fields
	open  bool             // a turn is being answered
	final *streamerr.Error // ends the conversation once no turn is open; nil if it continues
}

// begin notes that a turn begins, or returns why there are no more turns.
func (t *turns) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.final != nil {
		return t.final
	}
	t.open = true
	return nil
}

// end notes that the answer to a turn is complete, and returns why there are no more turns, or nil.
func (t *turns) end() *streamerr.Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = false
	return t.final
}

// last makes the open turn the last one. It reports whether there is no open turn.
func (t *turns) last(cause *streamerr.Error) (idle bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.final = cause
	return !t.open
}

// admit admits another turn, or ends the conversation as a request would be refused.
func (t *talk) admit(ctx context.Context) error {
	err := t.turns.begin()
	if err == nil {
		err = t.service.Identify(t.turns.conversation, t.turns.key)
	}
	if err == nil {
		err = t.turns.grant.Turn(ctx)
	}
	if err != nil {
		t.ctl.Stop(err)
	}
	return err
}

// charge charges the turns so far, and ends the conversation if the last one was the last.
func (t *talk) charge() {
	if t.turns.grant != nil {
		used := ledger.TokensOf(t.record.Proto())
		t.turns.grant.Charge(t.turns.conversation, int(used.Prompt)+int(used.Generated))
	}
	if final := t.turns.end(); final != nil {
		t.ctl.Stop(final)
	}
}

// endAfterTurn ends the conversation with cause after the open turn, or at once if there is none.
func (t *talk) endAfterTurn(cause *streamerr.Error) {
	if t.turns.last(cause) {
		t.ctl.Stop(cause)
	}
}

// watch ends the conversation at the end of its lifetime, and after its key is revoked or has
// expired. It returns when done is closed.
func (t *talk) watch(done <-chan struct{}) {
	lifetime := time.NewTimer(t.service.Lifetime)
	defer lifetime.Stop()
	recheck := time.NewTicker(t.service.Recheck)
	defer recheck.Stop()
	for {
		select {
		case <-lifetime.C:
			t.endAfterTurn(streamerr.New(streamerr.Deadline, "the WebSocket has been open for %v, which is the limit; open another one", t.service.Lifetime).WithCode(streamerr.CodeSocketLimit))
			return
		case <-recheck.C:
			// An issuer that does not answer says nothing about the key.
			if err := t.service.Identify(t.turns.conversation, t.turns.key); errors.Is(err, streamerr.Unauthenticated) || errors.Is(err, streamerr.Forbidden) {
				t.endAfterTurn(streamerr.As(err))
				return
			}
		case <-done:
			return
		}
	}
}
