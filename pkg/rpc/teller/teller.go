// Package teller stops a peer's stream with a unary call, for streams whose own call has no message
// for a Stop.
package teller

import (
	"context"
	"errors"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Teller calls the unary method of a peer that ends a stream from outside.
type Teller func(ctx context.Context, stop *streamv1.StopStreamRequest) error

// tellEvery is the retry interval while the peer does not know the stream: the call to stop may
// still be on its way.
const tellEvery = 5 * time.Millisecond

// Until sends the peer a Stop, and repeats it while the peer does not know the stream. It returns
// true when answered is closed, which means that the call to stop is over. It returns false if the
// Stop cannot be sent, or if grace is done.
func (tell Teller) Until(grace context.Context, answered <-chan struct{}, stop *streamv1.StopStreamRequest) bool {
	if tell == nil || stop.GetStreamId() == "" { // the peer uses another id for the stream
		return false
	}
	for !Closed(answered) {
		err := tell(grace, stop)
		if err != nil && !errors.Is(streamerr.FromGRPC("", err), streamerr.NotFound) {
			return Closed(answered)
		}
		again := (<-chan time.Time)(nil)
		if err != nil {
			again = time.After(tellEvery)
		}
		select {
		case <-answered:
		case <-grace.Done():
			return Closed(answered)
		case <-again:
		}
	}
	return true
}

// Closed reports whether c is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
