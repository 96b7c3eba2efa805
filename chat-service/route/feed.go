package route

import (
	"context"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvindex"
)

// follow keeps the index true to one worker, until ctx is done. The worker has a number in the index while it is healthy: one that
// was away has another cache than before.
func (k *KV) follow(ctx context.Context, w *fleet.Worker) {
	tick := time.NewTicker(fleet.ProbeEvery)
	defer tick.Stop()
	defer k.leave(w)
	for {
		info := w.Info()
		switch number, ok := k.join(w, info != nil); {
		case ok && info.GetKvEvents():
			err := k.listen(ctx, w, number)
			if ctx.Err() != nil {
				return
			}
			if k.tells(w, false) {
				w.Log().Warn("worker tells its blocks no more", "worker", w.Name(), "err", err)
			}
			k.index.Clear(number)
		case info == nil:
			k.leave(w)
		}
		k.guessed.Expire(time.Now())
		k.awaited.Expire(time.Now())
		select {
		case <-tick.C:
		case <-w.Turned():
		case <-ctx.Done():
			return
		}
	}
}

// join returns a worker's number in the index, which it gets if it is healthy. ok is false if it has none.
func (k *KV) join(w *fleet.Worker, healthy bool) (number kvindex.Worker, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at, known := k.places[w]; known || !healthy {
		return at.number, known
	}
	if number, ok = k.index.Join(); ok {
		k.places[w] = place{number: number}
	}
	return number, ok
}

func (k *KV) leave(w *fleet.Worker) {
	k.mu.Lock()
	at, known := k.places[w]
	delete(k.places, w)
	k.mu.Unlock()
	if known {
		k.index.Leave(at.number)
	}
}

// tells notes whether a worker names the blocks that it holds, and returns whether it did before.
func (k *KV) tells(w *fleet.Worker, tells bool) (did bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at, known := k.places[w]; known {
		did, at.tells = at.tells, tells
		k.places[w] = at
	}
	return did
}

// listen applies a worker's KV events until the call ends, and returns why it ended. Until a worker names a block its
// cache is unknown: it may be empty, or its engine's events may be unusable. Meanwhile the worker is expected to
// cache the prompts that were sent to it, like a worker without events.
func (k *KV) listen(ctx context.Context, w *fleet.Worker, number kvindex.Worker) error {
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
			k.index.Clear(number)
			k.tells(w, false)
		}
		if len(batch.GetStored()) > 0 {
			k.tells(w, true)
		}
		k.index.Remove(number, batch.GetRemoved())
		k.index.Store(number, batch.GetStored())
	}
}

// telling returns how many workers name the blocks that they hold.
func (k *KV) telling() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, at := range k.places {
		if at.tells {
			n++
		}
	}
	return n
}
