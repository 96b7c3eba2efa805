package redislog

import (
	"errors"
	"time"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxBatch bounds the events of one write or one read.
const maxBatch = 500

var (
	errLost      = errors.New("replay: the server does not know the stream")
	errForgotten = errors.New("replay: the stream was forgotten")
	errFenced    = errors.New("replay: another instance has ended the stream")
	errKey       = errors.New("replay: another stream has the idempotency key")
	errID        = errors.New("replay: another stream has the id")
)

// ship makes a stream live on the server, and writes its events until it has ended. Readers see an event
// once it is written.
func (l *Log) ship(out *replay.Outbox) {
	var written uint64
	var events []replay.Event
	live, head := false, out.Head()
	for {
		var closing, over bool
		clear(events)
		events, closing, over = out.Unwritten(events[:0], written, maxBatch)
		switch {
		case over:
			return
		case len(events) == 0 && live:
			select {
			case <-out.Ready():
				continue
			case <-l.closing.Done():
				return
			}
		}
		last, err := l.write(head, events, closing)
		switch {
		case err == nil:
			written, live = last, true
			out.Show(written)
		case errors.Is(err, errForgotten):
			return
		case errors.Is(err, errLost): // the server has restarted without data, and gets all events again
			written, live = 0, false
			out.Release()
			switch err := l.restore(head); {
			case errors.Is(err, errKey), errors.Is(err, errID):
				l.config.Log.Warn("redis lost a stream, and another stream has taken its place: the stream goes on, and can be resumed at this instance only", "stream", head.ID, "err", err)
				return
			case err != nil && !l.pause():
				return
			}
		case errors.Is(err, errFenced):
			out.Fence(&streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(head.Edge), Message: "other instances took " + head.Edge + " for dead, and have ended the stream"})
			return
		default:
			out.Release()
			if !l.pause() {
				return
			}
		}
	}
}

// pause waits for retryInterval. It returns false if the log is closing.
func (l *Log) pause() bool {
	select {
	case <-time.After(retryInterval):
		return true
	case <-l.closing.Done():
		return false
	}
}

// write adds events on the server, and returns the number of the last event there.
func (l *Log) write(h replay.Head, events []replay.Event, closing bool) (uint64, error) {
	ttl, closed := liveTTL, ""
	if closing {
		ttl, closed = l.config.Limits.TTL, "1"
	}
	args := []any{h.Epoch, l.run, closed, ttl.Milliseconds(), wakeName(h.ID)}
	for _, e := range events {
		args = append(args, e.Seq, string(e.Kind), e.Data)
	}
	last, err := add.Run(l.closing, l.db, keysOf(h), args...).Int64()
	l.answered(err)
	switch {
	case err != nil:
		return 0, err
	case last == -1:
		return 0, errLost
	case last == -2:
		return 0, errFenced
	case last == -3:
		return 0, errForgotten
	}
	return uint64(last), nil
}

// restore makes a head again that the server has lost. It fails with errKey or errID if another stream
// has taken the place.
func (l *Log) restore(h replay.Head) error {
	id, _, err := l.makeHead(l.closing, h)
	switch {
	case err != nil || id == h.ID:
		return err
	case id == "":
		return errID
	default:
		return errKey
	}
}
