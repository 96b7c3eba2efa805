package kvevents_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/llm-worker/kvevents"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A view is a subscriber's copy of the set of blocks.
type view struct {
	held     map[uint64]bool
	sequence uint64
	resets   int
}

func (v *view) apply(t *testing.T, batch *workerv1.KVEventsResponse) {
	t.Helper()
	if batch.GetSequence() != v.sequence+1 {
		t.Errorf("batch %d follows %d", batch.GetSequence(), v.sequence)
	}
	v.sequence = batch.GetSequence()
	if batch.GetReset_() {
		v.held = map[uint64]bool{}
		v.resets++
	}
	for _, b := range batch.GetRemoved() {
		delete(v.held, b)
	}
	for _, b := range batch.GetStored() {
		v.held[b] = true
	}
}

// drain applies all messages that are available now.
func (v *view) drain(t *testing.T, s *kvevents.Subscriber) {
	t.Helper()
	for ctx, cancel := context.WithCancel(t.Context()); ; {
		synctest.Wait()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if batch, err := s.Next(ctx); err == nil {
				v.apply(t, batch)
			}
		}()
		synctest.Wait()
		select {
		case <-done:
			continue
		default:
		}
		cancel()
		<-done
		return
	}
}

func TestSubscriberKnowsTheHeldBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hub kvevents.Hub
		truth := map[uint64]bool{}
		random := rand.New(rand.NewPCG(1, 2))
		var subscribers [3]*kvevents.Subscriber
		var views [3]view
		for round := range 300 {
			if i := round / 100; round%100 == 0 {
				subscribers[i] = hub.Subscribe()
				defer subscribers[i].Close()
			}
			var removed, stored []uint64
			for range random.IntN(20) {
				if b := random.Uint64N(50); random.IntN(2) == 0 {
					removed = append(removed, b)
				} else {
					stored = append(stored, b)
				}
			}
			if random.IntN(40) == 0 {
				hub.Clear()
				clear(truth)
			}
			hub.Publish(removed, stored)
			for _, b := range removed {
				delete(truth, b)
			}
			for _, b := range stored {
				truth[b] = true
			}
			if i := random.IntN(3); subscribers[i] != nil {
				if views[i].drain(t, subscribers[i]); !maps.Equal(views[i].held, truth) {
					t.Fatalf("round %d: subscriber %d knows %v of %v", round, i, views[i].held, truth)
				}
			}
		}
		if hub.Held() != len(truth) {
			t.Error(hub.Held(), len(truth))
		}
	})
}

func TestSlowSubscriberGetsANewSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hub kvevents.Hub
		s := hub.Subscribe()
		defer s.Close()
		var v view
		v.drain(t, s)
		for b := range uint64(200000) { // more than any limit
			hub.Publish(nil, []uint64{b + 1})
		}
		v.drain(t, s)
		if v.resets != 2 || len(v.held) != 200000 || v.sequence < 4 {
			t.Errorf("%d snapshots, %d blocks in %d batches", v.resets, len(v.held), v.sequence)
		}
	})
}

func TestNextEndsWithItsContext(t *testing.T) {
	var hub kvevents.Hub
	s := hub.Subscribe()
	defer s.Close()
	if batch, err := s.Next(t.Context()); err != nil || !batch.GetReset_() || len(batch.GetStored()) != 0 {
		t.Error(batch, err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := s.Next(ctx); !errors.Is(err, cause) {
		t.Error(err)
	}
}

func BenchmarkPublish(b *testing.B) {
	var hub kvevents.Hub
	s := hub.Subscribe()
	defer s.Close()
	stored := make([]uint64, 64)
	next := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		removed := append([]uint64(nil), stored...)
		for i := range stored {
			next++
			stored[i] = next
		}
		hub.Publish(removed, stored)
	}
}

// While an engine is away, the listener clears the hub each second. Subscribers must not get a
// snapshot each time.
func TestClearOfAnEmptyHubSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &kvevents.Hub{}
		s := h.Subscribe()
		defer s.Close()
		v := &view{}
		h.Publish(nil, []uint64{1, 2})
		v.drain(t, s)
		for range 5 {
			h.Clear()
			v.drain(t, s)
		}
		if v.resets != 2 || len(v.held) != 0 {
			t.Errorf("%d snapshots, %v", v.resets, v.held)
		}
	})
}
