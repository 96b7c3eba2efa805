package replay

import (
	"errors"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxBatch bounds what is written in one step.
const maxBatch = 500

var (
	errLost   = errors.New("replay: the server does not know the stream")
	errFenced = errors.New("replay: another instance has closed the stream")
	errKey    = errors.New("replay: another stream has the idempotency key")
	errID     = errors.New("replay: another stream has the id")
)

// ship makes a stream live on the server, and writes the stream's events until it has ended. Readers see an event
// once it is written.
func (r *Redis) ship(k *kept, ready <-chan struct{}) {
	var written uint64
	live := false
	for {
		events, closing, over := r.local.behind(k, written)
		switch {
		case over:
			return
		case len(events) == 0 && live:
			select {
			case <-ready:
				continue
			case <-r.closing.Done():
				return
			}
		}
		last, err := r.write(k.head, events, closing)
		switch {
		case err == nil:
			written, live = last, true
			r.local.show(k, written)
		case errors.Is(err, errLost): // it has restarted with nothing, and gets everything again
			written, live = 0, false
			r.local.release(k)
			switch err := r.restore(k.head); {
			case errors.Is(err, errKey), errors.Is(err, errID):
				r.config.Log.Warn("redis lost a stream, and another stream has taken its place: the stream goes on, and can be resumed at this instance only", "stream", k.head.ID, "err", err)
				return
			case err != nil && !r.pause():
				return
			}
		case errors.Is(err, errFenced):
			r.local.fence(k, &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(k.head.Edge), Message: "other instances took " + k.head.Edge + " for dead, and have ended the stream"})
			return
		default:
			r.local.release(k)
			if !r.pause() {
				return
			}
		}
	}
}

// pause waits until it is worth trying again, and reports whether there is time for that.
func (r *Redis) pause() bool {
	select {
	case <-time.After(again):
		return true
	case <-r.closing.Done():
		return false
	}
}

// write adds events on the server, and returns the number of the last that is there.
func (r *Redis) write(h Head, events []Event, closing bool) (uint64, error) {
	ttl, closed := liveTTL, ""
	if closing {
		ttl, closed = r.config.Limits.TTL, "1"
	}
	args := []any{h.Epoch, r.run, closed, ttl.Milliseconds(), wakeName(h.ID)}
	for _, e := range events {
		args = append(args, e.Seq, string(e.Kind), e.Data)
	}
	last, err := add.Run(r.closing, r.db, []string{headKey(h.ID), logKey(h.ID), h.idempotencyKey()}, args...).Int64()
	r.answered(err)
	switch {
	case err != nil:
		return 0, err
	case last == -1:
		return 0, errLost
	case last == -2:
		return 0, errFenced
	}
	return uint64(last), nil
}

// restore makes a head again that the server has lost. It fails with errKey or errID if another stream has taken the place.
func (r *Redis) restore(h Head) error {
	id, _, err := r.makeHead(r.closing, h)
	switch {
	case err != nil || id == h.ID:
		return err
	case id == "":
		return errID
	default:
		return errKey
	}
}

// hold keeps readers of a new stream from what is not shown. The channel gets a value when the stream has said more.
func (m *Memory) hold(k *kept) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	k.held, k.ready = true, make(chan struct{}, 1)
	return k.ready
}

// behind returns what comes after an event, up to maxBatch, and whether the closing one is among it. A stream is over when
// there is nothing left to come.
func (m *Memory) behind(k *kept, after uint64) (events []Event, closing, over bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.forgotten || !k.end.IsZero() && after == k.last() {
		return nil, false, true
	}
	for seq := max(after, k.dropped) + 1; seq <= k.last() && len(events) < maxBatch; seq++ {
		if deltas := k.deltas(); seq <= deltas {
			events = append(events, Event{seq, Delta, string(k.text[k.offset(seq-1):k.offset(seq)])})
		} else {
			events = append(events, k.rest[seq-deltas-1])
		}
	}
	return events, len(events) > 0 && events[len(events)-1].Kind.Closing(), false
}

// show lets readers see up to an event. Where they have seen everything, they are held again when nothing is behind.
func (m *Memory) show(k *kept, upto uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.forgotten {
		return
	}
	if k.held || upto == k.last() {
		k.held, k.shown = true, upto
	}
	k.wake()
}

// release lets readers see everything, now and from now on.
func (m *Memory) release(k *kept) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.held && !k.forgotten {
		k.held = false
		k.wake()
	}
}

// fence has the stream end: what it says next fails with cause.
func (m *Memory) fence(k *kept, cause error) {
	m.release(k)
	m.mu.Lock()
	defer m.mu.Unlock()
	k.stop = cause
}

// withKey returns the head of the stream with an idempotency key.
func (m *Memory) withKey(key string) (h Head, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.keys[key]; k != nil && key != "" {
		return k.head, true
	}
	return Head{}, false
}
