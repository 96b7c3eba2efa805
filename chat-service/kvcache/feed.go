package kvcache

import (
	"context"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvindex"
)

// Follow applies the KV events of one worker to the index, until ctx is done. The worker has a number in the index
// while it is healthy. A worker that comes back gets a new number, because its cache has changed.
func (t *Tracker) Follow(ctx context.Context, w *fleet.Worker) {
	tick := time.NewTicker(fleet.ProbeEvery)
	defer tick.Stop()
	defer t.leave(w)
	for {
		info := w.Info()
		switch number, ok := t.join(w, info != nil); {
		case ok && info.GetKvEvents():
			err := t.listen(ctx, w, number)
			if ctx.Err() != nil {
				return
			}
			if t.tells(w, false) {
				w.Log().Warn("worker tells its blocks no more", "worker", w.Name(), "err", err)
			}
			t.index.Clear(number)
		case info == nil:
			t.leave(w)
		}
		t.expire(time.Now())
		select {
		case <-tick.C:
		case <-w.Turned():
		case <-ctx.Done():
			return
		}
	}
}

// Join gives a healthy worker its number in the index. Follow does so by itself.
func (t *Tracker) Join(w *fleet.Worker) { t.join(w, w.Info() != nil) }

// expire forgets the prompts whose time has passed.
func (t *Tracker) expire(now time.Time) {
	t.guessed.Expire(now)
	t.awaited.Expire(now)
}

// join returns a worker's number in the index, which it gets if it is healthy. ok is false if it has none.
func (t *Tracker) join(w *fleet.Worker, healthy bool) (number kvindex.Worker, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, known := t.places[w]; known || !healthy {
		return at.number, known
	}
	if number, ok = t.index.Join(); ok {
		t.places[w] = place{number: number}
	}
	return number, ok
}

func (t *Tracker) leave(w *fleet.Worker) {
	t.mu.Lock()
	at, known := t.places[w]
	delete(t.places, w)
	t.mu.Unlock()
	if known {
		t.index.Leave(at.number)
	}
}

// tells notes whether a worker names the blocks that it holds, and returns whether it did before.
func (t *Tracker) tells(w *fleet.Worker, tells bool) (did bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, known := t.places[w]; known {
		did, at.tells = at.tells, tells
		t.places[w] = at
	}
	return did
}

// listen applies a worker's KV events until the call ends, and returns why it ended. Until a worker names a block its
// cache is unknown: it may be empty, or its engine's events may be unusable. Meanwhile the worker is expected to
// cache the prompts that were sent to it, like a worker without events.
func (t *Tracker) listen(ctx context.Context, w *fleet.Worker, number kvindex.Worker) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := w.KVEvents(ctx)
	if err != nil {
		return err
	}
	for {
		batch, err := events.Recv()
		if err != nil {
			return err
		}
		if batch.GetReset_() {
			t.index.Clear(number)
			t.tells(w, false)
		}
		if len(batch.GetStored()) > 0 {
			t.tells(w, true)
		}
		t.index.Remove(number, batch.GetRemoved())
		t.index.Store(number, batch.GetStored())
	}
}

// telling returns how many workers name the blocks that they hold.
func (t *Tracker) telling() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range t.places {
		if at.tells {
			n++
		}
	}
	return n
}
