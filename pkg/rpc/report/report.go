// Package report tells the observer of a stream about the events of a call to a peer, and logs how
// a stream has ended.
package report

import (
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/rpc/wire"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Call reports the events of one call to a peer. All methods except Resetting belong to the
// call's goroutine.
type Call struct {
	Flow observer.Flow
	Peer string // the peer's hop name

	begun bool // the peer has answered
	ended bool
	cut   atomic.Bool // this hop has reset the call, so the error of Recv is not the peer's
}

// Opening reports that the call begins. path has the hops that the call has crossed, this hop
// included.
func (c *Call) Opening(path streamerr.Path) {
	c.Flow.Note(observer.Event{Kind: observer.Calling, Path: path})
}

// Answered reports a message from the peer. Only the first message has an effect.
func (c *Call) Answered() {
	if !c.begun {
		c.begun = true
		c.Flow.Note(observer.Event{Kind: observer.CalleeAnswered, Path: streamerr.NewPath(c.Peer)})
	}
}

// Resetting reports that this hop sends the peer a Stop (kind observer.StopSent), or resets the
// call (observer.CallReset). Any goroutine may call it.
func (c *Call) Resetting(kind observer.Kind, cause *streamerr.Error) {
	if kind == observer.CallReset {
		c.cut.Store(true)
	}
	c.Flow.Note(observer.Event{Kind: kind, Reason: cause.Reason, Path: cause.Path})
}

// Over reports how the peer has ended the call. err is the error of Recv; st is nil if the call has
// no trailers. Only the first call of Over has an effect.
func (c *Call) Over(st grpc.ClientStream, err error) {
	if c.ended || c.cut.Load() {
		return
	}
	c.ended = true
	e := streamerr.FromGRPC(c.Peer, err)
	if e == nil { // io.EOF
		e = &streamerr.Error{Reason: streamerr.Completed, Path: streamerr.NewPath(c.Peer)}
	}
	if reason, path, ok := wire.Trailer(st); ok {
		e = &streamerr.Error{Reason: reason, Path: path}
	} else if wire.Unsaid(e) {
		c.Flow.Note(observer.Event{Kind: observer.CalleeReset, Reason: e.Reason, Path: e.Path})
		return
	}
	code := codes.OK
	if !errors.Is(err, io.EOF) {
		code = status.Code(err)
	}
	c.Flow.Note(observer.Event{Kind: observer.CalleeEnded, Code: code.String(), Reason: e.Reason, Path: e.Path})
}
