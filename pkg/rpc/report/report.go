// Package report tells the observer of a stream what happens to a call on a peer, and the log how a
// stream has ended.
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

// A Call reports one call on a peer. All methods but Resetting belong to the goroutine of the call.
type Call struct {
	Flow observer.Flow
	Peer string // the peer's hop name

	begun bool // the peer has answered
	ended bool
	cut   atomic.Bool // this hop has reset the call: the error of Recv is not the peer's
}

// Opening reports that the call goes out. path is the hops that it has crossed, this hop included.
func (c *Call) Opening(path streamerr.Path) {
	c.Flow.Note(observer.Event{Kind: observer.Calling, Path: path})
}

// Answered reports a message from the peer. Only the first message counts.
func (c *Call) Answered() {
	if !c.begun {
		c.begun = true
		c.Flow.Note(observer.Event{Kind: observer.CalleeAnswered, Path: streamerr.NewPath(c.Peer)})
	}
}

// Resetting reports that this hop tells the peer to stop (kind observer.StopSent), or resets the call (observer.CallReset).
// It may be called by any goroutine.
func (c *Call) Resetting(kind observer.Kind, cause *streamerr.Error) {
	if kind == observer.CallReset {
		c.cut.Store(true)
	}
	c.Flow.Note(observer.Event{Kind: kind, Reason: cause.Reason, Path: cause.Path})
}

// Over reports how the peer has ended the call. err is the error of Recv; st is nil if the call has no trailers. Only the
// first call of Over counts.
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
