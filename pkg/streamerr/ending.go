package streamerr

import (
	"log/slog"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// An Ending is the content of the last message of a completed stream. It points into that message,
// of whatever type, so that each hop can append its name to the path. A nil Ending has no reason
// and no path.
type Ending struct {
	// Reason is the reason of the ending. With any other than Completed the stream has failed; see
	// Failure.
	Reason Reason
	// Path points to the message's path, origin first. It is nil if the message has no path.
	Path *[]string
	// Attrs are the message's attributes for the log line of the ended stream.
	Attrs []slog.Attr
}

// EndingOf returns the Ending that points into end, or nil if end is nil.
func EndingOf(end *streamv1.End) *Ending {
	if end == nil {
		return nil
	}
	return &Ending{Reason: Reason(end.GetReason()), Path: &end.Path}
}

// Failure returns the error of a stream whose last message has another reason than Completed, such
// as one of a later release; otherwise nil. The error has the reason and the path of the message.
func (e *Ending) Failure() *Error {
	if e == nil || e.Reason == Completed {
		return nil
	}
	if e.Reason == Unspecified {
		return &Error{Reason: Internal, Path: e.Hops(), Message: "the last message of the stream has no reason"}
	}
	return &Error{Reason: e.Reason, Path: e.Hops(), Message: "the last message of the stream has the reason " + e.Reason.String()}
}

// Cross appends hop to the path, in the message too.
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
