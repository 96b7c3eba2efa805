package kvcache

import (
	"context"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
)

// Follow applies the KV events of one worker to the index until ctx is done. A worker has a number
// in the index while it is healthy. A worker that comes back gets a new number, because its cache
// has changed.
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
			if t.setReports(w, false) {
				w.Log().Warn("worker no longer reports its KV cache", "worker", w.Name(), "err", err)
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

// Join assigns a healthy worker its number in the index, which Follow otherwise does.
func (t *Tracker) Join(w *fleet.Worker) { t.join(w, w.Info() != nil) }

// expire removes expired prompts from both forecasts.
func (t *Tracker) expire(now time.Time) {
	t.guessed.Expire(now)
	t.awaited.Expire(now)
}

// join returns a worker's number in the index, and assigns one to a healthy worker. ok is false if
// the worker has none.
func (t *Tracker) join(w *fleet.Worker, healthy bool) (number workerNumber, ok bool) {
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

// setReports records whether a worker names the blocks that it holds, and returns the previous value.
func (t *Tracker) setReports(w *fleet.Worker, reports bool) (before bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, known := t.places[w]; known {
		before, at.reports = at.reports, reports
		t.places[w] = at
	}
	return before
}

// listen applies a worker's KV events until the call ends, and returns the error that ended it.
// Until a worker names a block, its cache is unknown: it may be empty, or its engine's events may
// be unusable. Until then the worker is treated like a worker without events, with a forecast of
// the prompts that were sent to it.
func (t *Tracker) listen(ctx context.Context, w *fleet.Worker, number workerNumber) error {
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
			t.setReports(w, false)
		}
		if len(batch.GetStored()) > 0 {
			t.setReports(w, true)
		}
		t.index.Remove(number, batch.GetRemoved())
		t.index.Store(number, batch.GetStored())
	}
}

// reporting returns the number of workers that name the blocks that they hold.
func (t *Tracker) reporting() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range t.places {
		if at.reports {
			n++
		}
	}
	return n
}
