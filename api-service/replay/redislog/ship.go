package redislog

import (
	"errors"
	"time"

	"github.com/whence-dev/whence/api-service/replay"
)

// maxBatch bounds the events of one write or one read.
const maxBatch = 500

var (
	errLost      = errors.New("replay: the server does not know the stream")
	errForgotten = errors.New("replay: the stream was forgotten")
	errFenced    = errors.New("replay: another instance has ended the stream, or has taken it over")
	errKey       = errors.New("replay: another stream has the idempotency key")
	errID        = errors.New("replay: another stream has the id")
)

// ship makes a stream live on the server, and writes its events until it has ended. The server
// already has the events up to number written. Readers see an event once it is written.
func (l *Log) ship(out *replay.Outbox, written uint64) {
	var events []replay.Event
	live, restored, head := false, false, out.Head()
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
			written, live, restored = last, true, false
			out.Show(written)
		case errors.Is(err, errForgotten):
			return
		case errors.Is(err, errLost): // the server has restarted without data, and gets all events again
			written, live = 0, false
			out.Release()
			if restored && !l.pause() { // it loses the stream each time
				return
			}
			restored = true
			switch err := l.restore(out); {
			case errors.Is(err, errFenced):
				l.fenced(head)
				return
			case errors.Is(err, errKey), errors.Is(err, errID):
				l.config.Log.Warn("redis lost a stream, and another stream has taken its place: the stream continues, and can be resumed at this instance only", "stream", head.ID, "err", err)
				return
			case err != nil && !l.pause():
				return
			}
		case errors.Is(err, errFenced):
			l.fenced(head)
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

// write appends events on the server, and returns the number of the last event there.
func (l *Log) write(h replay.Head, events []replay.Event, closing bool) (uint64, error) {
	ttl, closed := liveTTL, ""
	if closing {
		ttl, closed = l.config.Limits.KeepsFor(h), "1"
	}
	args := []any{h.ID, h.Epoch, l.run, closed, ttl.Milliseconds(), wakeName(h.ID)}
	for _, e := range events {
		args = append(args, e.Seq, string(e.Kind), e.Data, e.Note)
	}
	answer, err := addScript.Run(l.closing, l.db, keysOf(h, l.run), args...).Slice()
	l.answered(err)
	if err != nil {
		return 0, err
	}
	if len(answer) != 2 {
		return 0, errAnswer
	}
	last, _ := answer[0].(int64)
	cause, _ := answer[1].(string)
	if cause != "" && l.config.Stopped != nil {
		l.config.Stopped(h, cause)
	}
	switch {
	case last == -1:
		return 0, errLost
	case last == -2:
		return 0, errFenced
	case last == -3:
		return 0, errForgotten
	case last < 0 || len(events) > 0 && uint64(last) < events[len(events)-1].Seq:
		return 0, errAnswer
	default:
		return uint64(last), nil
	}
}

// restore recreates a head that the server has lost. It fails with errKey or errID if another
// stream has taken the key or the id, and with errFenced if another instance has the stream.
func (l *Log) restore(out *replay.Outbox) error {
	h := out.Head()
	id, state, err := l.makeHead(l.closing, h, "seams", out.Seams().String())
	switch {
	case err == nil && state == stateTaken:
		return errFenced
	case err != nil || id == h.ID:
		return err
	case id == "":
		return errID
	default:
		return errKey
	}
}
