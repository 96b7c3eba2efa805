package beside

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// trialWait is the time from a failed trial to the next one; it doubles with each failure up to
	// maxTrialWait.
	trialWait    = time.Second
	maxTrialWait = 30 * time.Second
	// trialJitter is the random part of the wait, so that the workers of a fleet do not try their
	// servers at the same time.
	trialJitter = 0.25
	// maxTryTimeout bounds the first trial of a server, which may compile, and aliveEvery is the time between
	// probes of a server that takes long.
	maxTryTimeout = 10 * time.Minute
	aliveEvery    = 5 * time.Second
)

// A Trial makes a server generate one token, to see whether and how it can. Trials cost the server
// work, so the waits between failed trials grow. A zero Trial is due.
type Trial struct {
	failure error // of the last trial; nil if there was none, or it succeeded
	wait    time.Duration
	next    time.Time // no trial before this time
}

// Do calls try, or returns the failure of the last trial while the next one is not due.
func (t *Trial) Do(try func() error) error {
	if t.failure != nil && time.Now().Before(t.next) {
		return t.failure
	}
	err := try()
	if err == nil {
		t.Reset()
		return nil
	}
	t.failure = err
	t.wait = min(max(2*t.wait, trialWait), maxTrialWait)
	t.next = time.Now().Add(t.wait - time.Duration(rand.Float64()*trialJitter*float64(t.wait)))
	return err
}

// Reset makes the next trial due, because the server was away or was replaced.
func (t *Trial) Reset() { *t = Trial{} }

// TrialPrompt is the prompt of a trial. Any text works whose tokens are those of its characters.
const TrialPrompt = "Hi"

// TrialRequest returns the request of a trial: one token, the likeliest one.
func TrialRequest(prompt []uint32) *workerv1.TokenRequest {
	return &workerv1.TokenRequest{Prompt: prompt, Sampling: &llmv1.Sampling{MaxTokens: proto.Uint32(1), Temperature: proto.Float32(0)}}
}

// TryPlain makes a server answer a request.
func TryPlain(ctx context.Context, ask func(context.Context, *workerv1.TokenRequest) (Call, error), req *workerv1.TokenRequest) error {
	call, err := ask(ctx, req)
	if err != nil {
		return err
	}
	return Drain(ctx, call)
}

// trialID begins the id of the request of a trial, in the server's log.
const trialID = "trial"

// trialContext returns the context of a trial, with an id for its requests. A server that is in service has
// TryTimeout for it. The first request to a new server may take longer, because the server compiles: it is
// waited for as long as alive, a probe of the server, succeeds, up to maxTryTimeout. cancel ends the trial.
func trialContext(ctx context.Context, inService bool, alive func(context.Context) error) (trial context.Context, cancel context.CancelFunc) {
	ctx = stream.WithID(ctx, NewID(stream.WithID(ctx, trialID)))
	if inService {
		return context.WithTimeout(ctx, TryTimeout)
	}
	ctx, end := context.WithTimeout(ctx, maxTryTimeout)
	trial, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		misses := 0 // late probes in a row
		for wait := TryTimeout; sleep(trial, wait); wait = aliveEvery {
			err := alive(trial)
			if misses++; err == nil {
				misses = 0
			} else if !Late(err) || misses >= maxMisses {
				stop(fmt.Errorf("%w: the server was silent, and does not answer a probe: %w", context.DeadlineExceeded, err))
			}
		}
	})
	return trial, func() {
		stop(context.Canceled)
		end()
		watch.Wait()
	}
}

// sleep waits for d, and reports false if ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Trials are the state of a Look that tries the server with one token when the server's listing, its
// description of its model, is new, or when the server may have been replaced.
type Trials[Listing any] struct {
	// Same reports whether two listings describe the same server.
	Same func(a, b *Listing) bool
	// Alive asks the server whether it is alive, at the cost of a probe.
	Alive func(ctx context.Context) error
	// Plain is the request that a server in doubt has to answer.
	Plain *workerv1.TokenRequest

	trial Trial
	seen  *Listing  // the last listing; nil before the first one, and after a failure
	last  *Listing  // the listing of the server that was usable last
	full  *Upstream // of a server that has refused its last trial because it was full
	doubt bool      // the server may have been replaced, and no trial has shown yet whether it was
}

// Unlisted records why the server did not send its listing, and returns the reason.
func (t *Trials[Listing]) Unlisted(err error) (*Upstream, error) {
	if !Late(err) { // when the server answers again, it is tried at once
		t.seen = nil
	}
	return nil, err
}

// Look returns the result of a Look that has read a listing; ctx, was and doubt are those of the Look. try
// tries a server that is new; one in doubt has to answer with a token only. A server that refuses its trial
// because it is full works: try then returns the error together with the Upstream, as far as it is known.
func (t *Trials[Listing]) Look(ctx context.Context, listed *Listing, was *Upstream, doubt bool, try func(ctx context.Context) (*Upstream, error)) (*Upstream, error) {
	if t.seen == nil || !t.Same(listed, t.seen) {
		t.trial.Reset()
	}
	t.seen = listed
	t.doubt = t.doubt || doubt
	same := t.last != nil && t.Same(listed, t.last)
	if was != nil && !t.doubt && same {
		return was, nil
	}
	var up *Upstream
	err := t.trial.Do(func() (err error) {
		ctx, cancel := trialContext(ctx, was != nil, t.Alive)
		defer cancel()
		if was != nil && same && was.Ask != nil {
			up, err = was, TryPlain(ctx, was.Ask, t.Plain)
		} else {
			up, err = try(ctx)
		}
		t.full = up
		return err
	})
	full := errors.Is(err, streamerr.Overloaded)
	switch {
	case full && t.full != nil && (was == nil || !same):
		return t.full, nil
	case was != nil && full:
		return was, nil // too busy to be tried; keep the old description until the next probe
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &lateTrial{err}
	}
	t.doubt = false
	if err != nil {
		return nil, err
	}
	t.last = listed
	return up, nil
}
