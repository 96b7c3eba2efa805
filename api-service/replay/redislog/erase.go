package redislog

import (
	"context"
	"errors"

	"github.com/whence-dev/whence/api-service/replay"
)

// maxEvicted bounds the evicted streams that the server still has to forget. The server keeps any
// further evicted streams for Limits.KeepsFor.
const maxEvicted = 4096

// evict makes the server forget a stream that was evicted here, so that the limits of the instances
// also bound the server.
func (l *Log) evict(h replay.Head) {
	if !h.Shared {
		return
	}
	select {
	case l.evicted <- h:
	default:
	}
}

// forgetEvicted makes the server forget evicted streams, until the log is closed. A server that
// does not answer keeps them for Limits.KeepsFor.
func (l *Log) forgetEvicted() {
	for {
		select {
		case h := <-l.evicted:
			l.forget(l.closing, h)
		case <-l.closing.Done():
			return
		}
	}
}

// Refuse implements replay.Log. While the server does not answer, Refuse is repeated until the log is
// closed: the server must not keep the key for a stream that its client may only try again.
func (l *Log) Refuse(ctx context.Context, id, epoch string, failure replay.Event) {
	h, e, ok := l.local.EndRefused(id, epoch, failure)
	if !ok || !h.Shared {
		return
	}
	refuse := func(ctx context.Context) error {
		ttl := min(replay.RefusedTTL, l.config.Limits.TTL).Milliseconds()
		err := refuseScript.Run(ctx, l.db, keysOf(h, l.run), id, epoch, l.run, ttl, wakeName(id), e.Seq, string(e.Kind), e.Data).Err()
		l.answered(err)
		return err
	}
	if err := refuse(context.WithoutCancel(ctx)); err == nil || h.Key == "" { // the caller may have left
		return
	}
	l.others.Go(func() { // at most one for each stream that had begun when the server went away: without it, no stream with a key begins
		for l.pause() {
			if refuse(l.closing) == nil {
				return
			}
		}
	})
}

// Erase implements replay.Log. A stream that only this instance has is erased here, even while the
// server is down.
func (l *Log) Erase(ctx context.Context, id, epoch string) (bool, error) {
	if w, err := l.local.Writer(id, epoch); err == nil && !w.Head().Shared {
		return l.local.Erase(ctx, id, epoch)
	}
	h, err := l.head(ctx, id)
	switch {
	case errors.Is(err, replay.ErrUnknown), err == nil && h.Epoch != epoch:
		return l.local.Erase(ctx, id, epoch)
	case err != nil:
		return false, err
	}
	n, err := eraseScript.Run(ctx, l.db, keysOf(h, l.run), id, epoch, wakeName(id), l.config.Limits.KeepsFor(h).Milliseconds()).Int()
	l.answered(err)
	if err != nil {
		return false, unavailable(err)
	}
	if n == 1 {
		l.local.Drop(id, epoch)
	}
	return n == 1, nil
}

// erased reports whether another instance has erased a stream of this instance. Only streams with a
// memo can be erased, and only while the server is up.
func (l *Log) erased(ctx context.Context, h replay.Head) bool {
	if h.Memo == "" || !h.Shared {
		return false
	}
	known, err := l.db.HMGet(ctx, headKey(h.ID), "epoch", "state").Result()
	l.answered(err)
	return err == nil && len(known) == 2 && known[0] == h.Epoch && known[1] == stateForgotten
}
