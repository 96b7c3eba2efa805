package reader

import (
	"context"
	"time"

	"github.com/whence-dev/whence/internal/client"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Follow reads a kept stream to its end.
func (r *Reader) Follow(ctx context.Context, st *client.Stream) {
	r.Ending = Cut
	defer func() { r.Over = time.Now() }()
	for e, err := range st.Events(ctx) {
		switch {
		case ctx.Err() != nil:
			r.Ending = Left
			return
		case err != nil:
			r.Ending, r.Err = Failed, failureOf(st.Ending())
			return
		case r.Ending == Completed:
			r.Ending = Cut // the ending was not the last event
			return
		case e.Kind == client.Delta && e.Text != "":
			r.token(e.Text, time.Now())
		case e.Kind == client.Ended:
			r.Ending = Completed
		}
	}
}

// failureOf returns the failure of a stream that did not complete.
func failureOf(e *client.Ending) *streamerr.Error {
	if e == nil || e.Err == nil {
		return streamerr.New(streamerr.Internal, "the reader gave up without an ending")
	}
	return &streamerr.Error{Reason: streamerr.ParseReason(string(e.Reason)), Path: streamerr.NewPath(e.Path...), Message: e.Err.Text()}
}
