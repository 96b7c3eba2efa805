// Package cause determines why a stream was stopped, if its context or its engine does not carry
// the reason.
package cause

import (
	"context"
	"errors"

	"github.com/whence-dev/whence/pkg/rpc/wire"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Of returns why the stream of ctx was stopped, or nil while it runs. If a context was canceled
// without a cause, Of can name only the side: either the stream's caller has gone, or this hop's
// own code has abandoned a stream whose caller still waits, which is a reset by this hop.
func Of(ctx context.Context) error {
	ctl := stream.ControlOf(ctx)
	err := ctl.Cause()
	ownCode := ctl != nil && err == nil // the hop's code canceled a context that it derived from the stream's
	if err == nil {
		err = context.Cause(ctx)
	}
	switch {
	case !errors.Is(err, context.Canceled) || Classified(err):
		return err
	case ownCode:
		return &streamerr.Error{Reason: streamerr.PeerReset, Message: "this hop's own code canceled the stream without a cause", Cause: err}
	default:
		return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(wire.UnnamedPeer), Message: "the caller canceled the stream without a cause", Cause: err}
	}
}

// Ending returns why a stream ended with err. If the engine was stopped and returns a context's
// error, or the status of its own call, the ending is the cause of the stop.
func Ending(ctx context.Context, err error) error {
	if Classified(err) {
		return err
	}
	reason := streamerr.As(err).Reason
	if reason != streamerr.PeerReset && reason != streamerr.Deadline {
		return err
	}
	if stopped := Of(ctx); stopped != nil {
		return stopped
	}
	return err
}

// Classified reports whether err already has a reason.
func Classified(err error) bool {
	_, ok := errors.AsType[*streamerr.Error](err)
	return ok
}
