package rpc

import (
	"context"
	"errors"
	"io"
	"iter"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// errLeft is the cause of a call that is cut because the grace after its stop has passed.
var errLeft = errors.New("rpc: the peer did not end the call within the grace")

// Dial returns the engine behind a bidi method of a peer. open starts a call, such as chatv1.NewChatClient(cc).Generate.
// self and peer are hop names.
//
// When the stream is stopped, the peer is sent a Stop with the cause and the path so far, then has the grace to answer; a
// caller that leaves the loop early does the same with reason COMPLETED: it has what it needs. The last error is the
// cause of the stop where there was one, whatever the peer made of it, so that every hop tells the same story.
func Dial[Req, In, Out any](self, peer string, open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[In, Out], error), m *Method[Req, In, Out]) stream.Engine[Req, *Out] {
	return func(ctx context.Context, req Req) iter.Seq2[*Out, error] {
		return func(yield func(*Out, error) bool) {
			if stopped := cause(ctx); stopped != nil {
				yield(nil, stopped)
				return
			}
			stream.NoteCallee(ctx, peer)
			// Detached: were the call to end with ctx, its RST would overtake the Stop that says why.
			callCtx, cut := context.WithCancelCause(withOutgoingVia(context.WithoutCancel(ctx), self))
			defer cut(nil)
			c := &call[Req, In, Out]{
				self: self, peer: peer, m: m, cut: cut, opened: make(chan struct{}), said: make(chan *time.Timer, 1),
				events: callEvents{flow: observer.Of(ctx), peer: peer},
			}
			c.events.opening(via(ctx).Append(self))
			c.run(ctx, func() (grpc.BidiStreamingClient[In, Out], error) {
				first, err := m.request(req)
				if err != nil {
					return nil, err
				}
				st, err := open(callCtx)
				if err != nil {
					return nil, err
				}
				if err = st.Send(first); err != nil {
					if _, why := st.Recv(); why != nil { // Send only says that the call is over
						err = why
					}
				}
				return st, err
			}, yield)
		}
	}
}

// A call is one stream on a peer.
type call[Req, In, Out any] struct {
	self, peer string
	m          *Method[Req, In, Out]
	cut        context.CancelCauseFunc // resets the call
	events     callEvents

	st     grpc.BidiStreamingClient[In, Out] // nil if the call could not be opened; set before opened is closed
	opened chan struct{}                     // closed once the request is sent or has failed
	said   chan *time.Timer                  // capacity 1: the grace timer of the one stop

	// Owned by the goroutine of the call.
	received  int // tokens counted in the record; tokens that came after a stop are not counted
	generated int // tokens that the peer says engines have generated, once the call is over; 0 if it does not say
}

// generatedTrailer is the trailer in which a callee reports how many tokens engines have generated for the stream.
const generatedTrailer = "whence-tokens-generated"

// recv receives a message, or the end of the call with its trailers.
func (c *call[Req, In, Out]) recv() (*Out, error) {
	out, err := c.st.Recv()
	if err != nil {
		// Only now the trailers may be read.
		if n, err := strconv.ParseUint(first(c.st.Trailer(), generatedTrailer), 10, 31); err == nil {
			c.generated = int(n)
		}
		return nil, err
	}
	return out, nil
}

func (c *call[Req, In, Out]) run(ctx context.Context, open func() (grpc.BidiStreamingClient[In, Out], error), yield func(*Out, error) bool) {
	flow := c.events.flow
	defer func() {
		if n := c.generated - c.received; n > 0 {
			flow.Note(observer.Event{Kind: observer.Unreceived, Tokens: n})
		}
	}()
	undo := stream.AfterStop(ctx, func(error) { c.stop(cause(ctx)) })
	var left error = streamerr.New(streamerr.Internal, "the reader panicked") // unless the code below says otherwise
	defer func() {
		switch stopped := !undo(); {
		case stopped: // c.stop runs or has run
		case left == nil:
			return // ended by itself
		default:
			c.stop(left)
		}
		timer := <-c.said
		for c.st != nil {
			if _, err := c.recv(); err != nil {
				c.events.over(c.st, err)
				break
			}
		}
		if timer.Stop() { // the peer has ended the call by itself
			flow.Note(observer.Event{Kind: observer.Confirmed})
		}
	}()

	st, err := c.open(open)
	for err == nil {
		var out *Out
		if out, err = c.recv(); err != nil {
			break
		}
		c.events.answered()
		tokens := c.m.tokens(out)
		c.received += tokens
		flow.Received(tokens, out)
		if c.m.end(out) != nil {
			if err = c.status(); err != nil {
				break
			}
			left = nil
			yield(out, nil)
			return
		}
		if !yield(out, nil) {
			left = streamerr.New(streamerr.Completed, "the reader has what it needs")
			return
		}
	}
	left = nil
	c.events.over(st, err)
	if ended := c.ended(ctx, err); ended != nil {
		yield(nil, ended)
	}
}

// open opens the call and sends the request. Afterwards stop no longer waits for it, even if it has failed.
func (c *call[Req, In, Out]) open(open func() (grpc.BidiStreamingClient[In, Out], error)) (grpc.BidiStreamingClient[In, Out], error) {
	defer close(c.opened)
	st, err := open()
	c.st = st
	return st, err
}

// status awaits the end of the call behind its End message, within the grace, so that the peer has forgotten the stream when
// the caller hears of its end. A peer that is slow to forget it, or is lost before it says goodbye, has said how the stream ended.
func (c *call[Req, In, Out]) status() error {
	timer := time.AfterFunc(DefaultGrace, func() { c.reset(streamerr.New(streamerr.Completed, "")) })
	defer timer.Stop()
	switch _, err := c.recv(); {
	case errors.Is(err, io.EOF):
		c.events.over(c.st, err)
		return nil
	case err != nil:
		if _, _, told := trailer(c.st); told || !unsaid(streamerr.FromGRPC(c.peer, err)) {
			return err
		}
		c.events.over(c.st, err)
		return nil
	default:
		return streamerr.New(streamerr.Internal, "%s sent a message after its ending", c.peer)
	}
}

// stop sends the cause to the peer and half-closes. It cuts the call after the grace, or at once if the method has no
// message for the cause.
func (c *call[Req, In, Out]) stop(cause error) {
	told := streamerr.Via(c.self, cause)
	timer := time.AfterFunc(DefaultGrace, func() { c.reset(told) })
	defer func() { c.said <- timer }()
	<-c.opened // at the latest when cut
	if c.st == nil {
		return
	}
	message := c.m.control(toStop(told))
	if message == nil {
		if timer.Stop() {
			c.reset(told)
		}
		return
	}
	c.events.resetting(observer.StopSent, told)
	_ = c.st.Send(message) // a broken call is noticed by Recv
	_ = c.st.CloseSend()
}

// reset cuts the call, in which the peer was told cause and has not ended.
func (c *call[Req, In, Out]) reset(cause *streamerr.Error) {
	c.events.resetting(observer.CallReset, cause)
	c.cut(errLeft)
}

// ended returns why a call is over: the cause of the stop if there was one, else the peer's status; nil for a normal
// end.
func (c *call[Req, In, Out]) ended(ctx context.Context, err error) error {
	if stopped := cause(ctx); stopped != nil {
		return stopped
	}
	if errors.Is(err, io.EOF) {
		if c.m.endless() {
			return nil
		}
		return &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(c.peer), Message: "the peer closed the stream without an ending"}
	}
	return streamerr.FromGRPC(c.peer, err)
}
