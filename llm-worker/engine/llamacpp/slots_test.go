package llamacpp_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/llamacpp"
	"github.com/whence-dev/whence/llm-worker/engine/llamacpp/llamacpptest"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestStopIsConfirmedOnceNoSlotWorksOnTheRequest: the server reads the rest of a batch for a client that has
// left, and then frees the slot.
func TestStopIsConfirmedOnceNoSlotWorksOnTheRequest(t *testing.T) {
	t.Parallel()
	const soon = 50 * time.Millisecond // for stops that are not confirmed, however long it takes
	for name, test := range map[string]struct {
		tokens    int // before the stop
		seed      *uint64
		before    func(*llamacpptest.Slots)
		within    time.Duration
		confirmed bool
	}{
		"in mid-answer":                      {1, nil, func(*llamacpptest.Slots) {}, polltest.Patience, true},
		"in mid-answer, after some steps":    {1, nil, func(s *llamacpptest.Slots) { s.Linger.Store(10) }, polltest.Patience, true},
		"with the client's seed":             {1, proto.Uint64(7), func(s *llamacpptest.Slots) { s.Linger.Store(10) }, polltest.Patience, true},
		"while the prompt is read":           {0, nil, func(s *llamacpptest.Slots) { s.Linger.Store(10) }, polltest.Patience, true},
		"while the prompt is read, for long": {0, nil, func(s *llamacpptest.Slots) { s.Linger.Store(1 << 30) }, soon, false},
		"in the queue":                       {0, nil, func(s *llamacpptest.Slots) { s.Queue.Store(true) }, soon, false},
		// Another request may have the same seed.
		"with the client's seed, while the prompt is read": {0, proto.Uint64(7), func(s *llamacpptest.Slots) { s.Linger.Store(10) }, soon, false},
		"without slots to see":                             {1, nil, func(s *llamacpptest.Slots) { s.Off.Store(true) }, polltest.Patience, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slots := new(llamacpptest.Slots)
			s := subject(t)
			s.Dialect = slots.Dialect()
			asked := make(chan struct{})
			e, _ := s.Start(t, func(a *besidetest.Answer) error {
				if test.tokens > 0 { // an event without tokens would show that the request has a slot
					a.Chunk(besidetest.Tokens(a.Prompt, test.tokens)...)
				}
				close(asked)
				a.Wait()
				return nil
			})
			e.(*llamacpp.Engine).ConfirmWithin(test.within) //nolint:forcetypeassert // subject's
			test.before(slots)
			ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
			defer ctl.Release()
			stop := sync.OnceFunc(func() { go ctl.Stop(streamerr.ClientGone) })
			go func() {
				if <-asked; test.tokens == 0 {
					stop()
				}
			}()
			req := besidetest.Ask(100)
			req.Sampling.Seed = test.seed
			r := besidetest.Read(ctx, e, req, func(r *besidetest.Result) {
				if len(r.Tokens) > 0 {
					stop()
				}
			})
			if !errors.Is(r.Err, streamerr.ClientGone) || (r.Record.GetStopConfirmed() != nil) != test.confirmed {
				t.Errorf("%v, confirmed at %v", r.Err, r.Record.GetStopConfirmed())
			}
			if lingers := slots.Linger.Load(); test.confirmed && slots.Shown.Load() <= lingers {
				t.Errorf("the stop is confirmed after %d looks, and the slot is busy for %d", slots.Shown.Load(), lingers)
			}
		})
	}
}

// TestStopIsNotConfirmedWhileASlotHasTheSameSeed: two requests with one seed cannot be told apart.
func TestStopIsNotConfirmedWhileASlotHasTheSameSeed(t *testing.T) {
	t.Parallel()
	e, _ := subject(t).Start(t, func(a *besidetest.Answer) error {
		a.Chunk(7)
		a.Wait()
		return nil
	})
	e.(*llamacpp.Engine).ConfirmWithin(50 * time.Millisecond) //nolint:forcetypeassert // subject's
	seeded := func() *workerv1.TokenRequest {
		req := besidetest.Ask(100)
		req.Sampling.Seed = proto.Uint64(7)
		return req
	}
	begun, other := make(chan struct{}), make(chan struct{})
	otherCtx, otherCtl := stream.WithControl(t.Context(), polltest.Patience)
	defer otherCtl.Release()
	go func() {
		defer close(other)
		besidetest.Read(otherCtx, e, seeded(), func(r *besidetest.Result) {
			if len(r.Tokens) == 1 {
				close(begun)
			}
		})
	}()
	<-begun
	ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
	defer ctl.Release()
	r := besidetest.Read(ctx, e, seeded(), func(r *besidetest.Result) {
		if len(r.Tokens) == 1 {
			go ctl.Stop(streamerr.ClientGone)
		}
	})
	if !errors.Is(r.Err, streamerr.ClientGone) || r.Record.GetStopConfirmed() != nil {
		t.Errorf("%v, confirmed at %v", r.Err, r.Record.GetStopConfirmed())
	}
	otherCtl.Stop(streamerr.ClientGone)
	<-other
}
