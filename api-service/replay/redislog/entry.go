package redislog

import (
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/replay"
)

// errOrder is the error of a page whose events do not follow each other.
var errOrder = errors.New("the events of a stream are not in their order")

// parseEntries returns the events in entries of a Redis Stream. Their numbers grow, and are above
// after.
func parseEntries(entries []redis.XMessage, after uint64) ([]replay.Event, error) {
	events := make([]replay.Event, 0, len(entries))
	for _, e := range entries {
		digits, _, _ := strings.Cut(e.ID, "-")
		seq, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return nil, err
		}
		if seq <= after {
			return nil, errOrder
		}
		after = seq
		kind, _ := e.Values["kind"].(string)
		data, _ := e.Values["data"].(string)
		note, _ := e.Values["note"].(string)
		events = append(events, replay.Event{Seq: seq, Kind: replay.Kind(kind), Data: data, Note: note})
	}
	return events, nil
}

// mergeEvents merges consecutive deltas of one generation into events of at most replay.MaxMerged
// bytes.
func mergeEvents(events []replay.Event) []replay.Event {
	var out []replay.Event
	for from := 0; from < len(events); {
		to, size := from+1, len(events[from].Data)
		for to < len(events) && mergeable(&events[from], &events[to]) && size+len(events[to].Data) <= replay.MaxMerged {
			size += len(events[to].Data)
			to++
		}
		if to == from+1 { // the common case: the reader keeps up
			out = append(out, replay.Event{Seq: events[from].Seq, Kind: events[from].Kind, Data: events[from].Data})
			from = to
			continue
		}
		var text strings.Builder
		text.Grow(size)
		for _, part := range events[from:to] {
			text.WriteString(part.Data)
		}
		out = append(out, replay.Event{Seq: events[to-1].Seq, Kind: events[from].Kind, Data: text.String()})
		from = to
	}
	return out
}

// mergeable reports whether two consecutive events may be merged.
func mergeable(a, b *replay.Event) bool {
	return a.Kind == replay.Delta && b.Kind == replay.Delta && a.Generation() == b.Generation()
}
