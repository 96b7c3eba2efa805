package rpc

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

// callEvents tells the stream's Flow what happens to a call on a peer. All but cut is owned by the goroutine of the call.
type callEvents struct {
	flow  observer.Flow
	peer  string
	begun bool // there was an answer
	ended bool
	cut   atomic.Bool // by this hop: what Recv says then is not the peer's
}

// opening notes that the call goes out, as the last hop of path.
func (c *callEvents) opening(path streamerr.Path) {
	c.flow.Note(observer.Event{Kind: observer.Calling, Path: path})
}

// answered notes a message from the peer.
func (c *callEvents) answered() {
	if !c.begun {
		c.begun = true
		c.flow.Note(observer.Event{Kind: observer.CalleeAnswered, Path: streamerr.NewPath(c.peer)})
	}
}

// resetting notes that the peer is told to stop, or that the call is reset.
func (c *callEvents) resetting(kind observer.Kind, cause *streamerr.Error) {
	if kind == observer.CallReset {
		c.cut.Store(true)
	}
	c.flow.Note(observer.Event{Kind: kind, Reason: cause.Reason, Path: cause.Path})
}

// over notes how the peer has ended the call: with a trailer, or without. err is Recv's. Only the first one counts.
func (c *callEvents) over(st grpc.ClientStream, err error) {
	if c.ended || c.cut.Load() {
		return
	}
	c.ended = true
	e := streamerr.FromGRPC(c.peer, err)
	if e == nil { // io.EOF
		e = &streamerr.Error{Reason: streamerr.Completed, Path: streamerr.NewPath(c.peer)}
	}
	if reason, path, ok := wire.Trailer(st); ok {
		e = &streamerr.Error{Reason: reason, Path: path}
	} else if wire.Unsaid(e) {
		c.flow.Note(observer.Event{Kind: observer.CalleeReset, Reason: e.Reason, Path: e.Path})
		return
	}
	code := codes.OK
	if !errors.Is(err, io.EOF) {
		code = status.Code(err)
	}
	c.flow.Note(observer.Event{Kind: observer.CalleeEnded, Code: code.String(), Reason: e.Reason, Path: e.Path})
}
