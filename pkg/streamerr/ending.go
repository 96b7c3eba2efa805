package streamerr

import (
	"log/slog"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// An Ending is what the last message of a completed stream says. It points into that message, whatever its type, so that
// each hop can append itself to the path. A nil Ending has no reason and no path.
type Ending struct {
	// Reason is why the stream ended: Completed.
	Reason Reason
	// Path points to the message's path, the origin first; nil if the message has none.
	Path *[]string
	// Attrs are what the message adds to the log line of the ended stream.
	Attrs []slog.Attr
}

// EndingOf returns the ending that end carries, or nil if end is nil.
func EndingOf(end *streamv1.End) *Ending {
	if end == nil {
		return nil
	}
	return &Ending{Reason: Reason(end.GetReason()), Path: &end.Path}
}

// Cross appends a hop to the path, in the message too.
func (e *Ending) Cross(hop string) {
	path := e.Hops().Append(hop)
	if e.Path == nil {
		e.Path = new([]string)
	}
	*e.Path = path
}

// Hops returns the path.
func (e *Ending) Hops() Path {
	if e == nil || e.Path == nil {
		return nil
	}
	return NewPath(*e.Path...)
}
