package llamacpp

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// slots reads what the server's slots work on. It has one read under way at a time, which all stops that
// wait for one share.
type slots struct {
	client *overhttp.Client
	within time.Duration // in which a stop is confirmed, or not
	turn   chan struct{} // capacity 1: held by the stop that reads

	// Owned by the holder of turn.
	began time.Time // when the last read began
	last  []slot
	err   error
}

// A slot is a part of the answer to GET /slots. Seed is that of the request on which a busy slot works; nil
// from a server that does not tell.
type slot struct {
	Busy    bool `json:"is_processing"`
	Request struct {
		Seed *uint64 `json:"seed"`
	} `json:"params"`
}

func newSlots(client *overhttp.Client) *slots {
	return &slots{client: client, within: confirmWithin, turn: make(chan struct{}, 1)}
}

// after returns the slots as a read found them that began after t. The server answers between two steps of its
// model, so an answer may take as long as a step.
func (s *slots) after(ctx context.Context, t time.Time) ([]slot, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.began.After(t) {
		return s.last, s.err
	}
	s.began, s.last = time.Now(), nil
	s.err = s.client.Get(ctx, "/slots", &s.last)
	return s.last, s.err
}

const (
	// confirmWithin bounds the time in which the server may stop, for a stream whose own grace does not end
	// earlier. A server that reads a prompt looks for clients that have left only when a batch is read, which
	// may take minutes.
	confirmWithin = 2 * time.Second
	// lookAgain is the time to the second look at the slots. It doubles with each look up to maxLookAgain.
	lookAgain    = 5 * time.Millisecond
	maxLookAgain = 200 * time.Millisecond
)

// Confirm implements beside.Confirmer. The request is over when no slot works on it, but only if a slot has
// worked on it before: a request without a token may be queued, or not even read by the server.
func (c *call) Confirm(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.slots.within)
	defer cancel()
	begun := c.begun.Load()
	for wait := lookAgain; ; wait = min(2*wait, maxLookAgain) {
		slots, err := c.slots.after(ctx, time.Now())
		switch working, perhaps := c.works(slots); {
		case err != nil && !beside.Late(err) && !errors.Is(err, streamerr.Unavailable):
			return false // the server does not tell
		case err != nil || perhaps:
		case working:
			begun = true
		case begun:
			return true
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return false
		}
	}
}

// works reports whether a slot works on the request, or perhaps does: it may be another request.
func (c *call) works(slots []slot) (certainly, perhaps bool) {
	for _, s := range slots {
		if seed := s.Request.Seed; s.Busy && (seed == nil || *seed == c.seed) {
			if seed != nil && c.unique {
				return true, false
			}
			perhaps = true
		}
	}
	return false, perhaps
}

// anySeed returns the seed of a request that names none. It also tells the request's slot from the others.
func anySeed() uint64 { return beside.Seed(rand.Uint64()) }
