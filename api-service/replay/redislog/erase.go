package redislog

import (
	"context"
	"errors"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/redislog/script"
)

// Erase implements replay.Log. A stream that only this instance has is erased here.
func (l *Log) Erase(ctx context.Context, id, epoch string) (bool, error) {
	h, _, err := l.head(ctx, id)
	switch {
	case errors.Is(err, replay.ErrUnknown), err == nil && h.Epoch != epoch:
		return l.local.Erase(ctx, id, epoch)
	case err != nil:
		return false, err
	}
	n, err := script.Erase.Run(ctx, l.db, keysOf(h, l.run), id, epoch, wakeName(id), l.config.Limits.TTL.Milliseconds()).Int()
	l.answered(err)
	if err != nil {
		return false, unavailable(err)
	}
	if n == 1 {
		l.local.Drop(id, epoch)
	}
	return n == 1, nil
}

// erased reports whether another instance has erased a stream of this one. Only streams with a memo are
// erased. While the server is down, nothing is.
func (l *Log) erased(ctx context.Context, h replay.Head) bool {
	if h.Memo == "" || !h.Shared {
		return false
	}
	known, err := l.db.HMGet(ctx, headKey(h.ID), "epoch", "state").Result()
	l.answered(err)
	return err == nil && known[0] == h.Epoch && known[1] == script.Forgotten
}
