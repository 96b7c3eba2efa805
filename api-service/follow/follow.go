// Package follow is how clients read a stream that is in the log, over EventSource: cursors, the tokens that let them, and
// the events that they get.
//
// The ids of events are cursors, so a reader that comes back with the last one gets what follows, once. A reader that lags
// gets larger events; one that does not read at all is cut and can come back.
package follow

import (
	"context"

	"github.com/whence-dev/whence/api-service/replay"
)

// A Sink writes an event to one reader. Its errors say that the reader cannot be written to.
type Sink func(id, name string, data []byte) error

// An End is how far a reader came.
type End struct {
	After  uint64 // the last event that was written
	Closed bool   // it was the closing one
	Events int    // how many were written
}

// Follow writes what comes after the event with the number after, until the closing event is written, ctx is done, or there is
// an error of the reader or the sink.
func Follow(ctx context.Context, r replay.Reader, after uint64, sink Sink) (End, error) {
	e := End{After: after}
	for live(ctx) {
		p, err := r.Read(ctx, e.After)
		if err != nil {
			return e, err
		}
		for _, event := range p.Events {
			if !live(ctx) {
				return e, nil
			}
			if err := sink(Cursor{r.Head().Epoch, event.Seq}.String(), string(event.Kind), data(event)); err != nil {
				return e, err
			}
			e.After = event.Seq
			e.Events++
		}
		if e.Closed = p.Ended; e.Closed {
			return e, nil
		}
		if len(p.Events) > 0 {
			continue // what has come in the meantime can be merged
		}
		select {
		case <-p.More:
		case <-ctx.Done():
		}
	}
	return e, nil
}

func live(ctx context.Context) bool { return ctx.Err() == nil }
