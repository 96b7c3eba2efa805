// Package teller stops a peer's stream with a unary call, for streams whose own call has no message for
// a Stop.
package teller

import (
	"context"
	"errors"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Teller is the unary method of a peer that ends a stream from outside of it.
type Teller func(ctx context.Context, stop *streamv1.StopStreamRequest) error

// tellEvery is how often a peer is told that does not know the stream: the call that is to end may still be on its way.
const tellEvery = 5 * time.Millisecond

// Until tells the peer to stop, again while it does not know the stream, and returns true when answered is closed: the call that
// is to stop is over. It returns false if the peer cannot be told, or if grace is done.
func (tell Teller) Until(grace context.Context, answered <-chan struct{}, stop *streamv1.StopStreamRequest) bool {
	if tell == nil || stop.GetStreamId() == "" { // the peer has another name for the stream
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
