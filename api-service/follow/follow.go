// Package follow records streams in the replay log, and writes them to readers over EventSource.
//
// The ids of events are cursors, so a reader that reconnects with the last id gets the later
// events, each once. A slow reader gets larger events. A reader that does not read at all is
// disconnected, and can reconnect.
//
// # Encoding
//
// A Recorder encodes each delta once. The log stores these bytes, and merges deltas by
// concatenating them:
//
//   - Text is stored as the inside of a JSON string. Concatenated texts are the inside of the JSON
//     string of the whole text, so text of any length needs no more than a frame around it.
//   - A delta with reasoning or tool calls is the JSON object that readers get, between two fence bytes.
//   - A delta that names its choice is a mark byte and the JSON object that readers get.
//
// A reader that keeps up gets the stored bytes. Only objects that the log has merged for a slow
// reader are decoded and joined. The mark and the fence are bytes that UTF-8 does not use.
package follow

import (
	"context"
	"strconv"

	"github.com/whence-dev/whence/api-service/replay"
)

// A Sink writes an event to one reader. data is valid until the Sink returns. An error means that
// the reader cannot be written to.
type Sink func(id, name string, data []byte) error

// An End is the position that a reader reached.
type End struct {
	After  uint64 // the number of the last event that was written
	Closed bool   // the closing event was written
	Events int    // the number of events that were written
}

// Follow writes the events after number after. It returns when the closing event is written, when
// ctx is done, or with an error of the reader or the sink.
func Follow(ctx context.Context, r replay.Reader, after uint64, sink Sink) (End, error) {
	var data []byte // reused
	id := append([]byte(r.Head().Epoch), '.')
	epoch := len(id)
	return Each(ctx, r, after, func(event replay.Event) error {
		id = strconv.AppendUint(id[:epoch], event.Seq, 10)
		data = appendData(data[:0], event)
		return sink(string(id), string(event.Kind), data)
	})
}

// Each is Follow without encoding: sink gets the events as the log returns them.
func Each(ctx context.Context, r replay.Reader, after uint64, sink func(replay.Event) error) (End, error) {
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
			if err := sink(event); err != nil {
				return e, err
			}
			e.After = event.Seq
			e.Events++
		}
		if e.Closed = p.Ended; e.Closed {
			return e, nil
		}
		if len(p.Events) > 0 {
			continue // read again: events that have arrived in the meantime can be merged
		}
		select {
		case <-p.More:
		case <-ctx.Done():
		}
	}
	return e, nil
}

func live(ctx context.Context) bool { return ctx.Err() == nil }
