package report

import (
	"context"

	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Outcome is how a stream ended on this hop: with an ending, or with an error that has crossed
// this hop.
type Outcome struct {
	End *streamerr.Ending
	Err *streamerr.Error
}

// Reason returns why the stream ended.
func (o Outcome) Reason() streamerr.Reason {
	switch {
	case o.Err != nil:
		return o.Err.Reason
	case o.End != nil:
		return o.End.Reason
	default:
		return streamerr.Unspecified
	}
}

// Status returns the status for the handler. It is nil if the stream has completed, or if the
// caller left because it had all it needed.
func (o Outcome) Status() error {
	if o.Err == nil || o.Err.Reason == streamerr.Completed {
		return nil
	}
	return o.Err
}

// Path returns the hops that the ending has crossed, this hop included.
func (o Outcome) Path() streamerr.Path {
	if o.Err != nil {
		return o.Err.Path
	}
	return o.End.Hops()
}

// EndingSent records that the ending was sent to the caller. code is the status as the caller reads it.
func (o Outcome) EndingSent(ctx context.Context, code string) {
	observer.Of(ctx).Note(observer.Event{Kind: observer.EndingSent, Code: code, Reason: o.Reason(), Path: o.Path()})
}
