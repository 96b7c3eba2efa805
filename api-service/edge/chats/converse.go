package chats

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Conversation is a request whose turns arrive one after another. The engine that answers the
// conversation owns Later.
type Conversation struct {
	First *chatv1.ChatRequest
	Later *stream.Inbox[*chatv1.ConverseRequest]
}

// A ConverseEngine answers the turns of a conversation.
type ConverseEngine = stream.Sequence[*Conversation, *chatv1.ConverseResponse]

// Converse describes whence.chat.v1.Chat/Converse to package rpc, by the first message of a call.
var Converse = &rpc.Method[*chatv1.ChatRequest, chatv1.ConverseRequest, chatv1.ConverseResponse]{
	Open: func(req *chatv1.ChatRequest) *chatv1.ConverseRequest {
		return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Chat{Chat: req}}
	},
	Stop: func(stop *streamv1.Stop) *chatv1.ConverseRequest {
		return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Stop{Stop: stop}}
	},
	ID:        func(req *chatv1.ChatRequest) *string { return &req.StreamId },
	Owner:     func(req *chatv1.ChatRequest) string { return req.GetClaim().GetOwner() },
	Started:   func(out *chatv1.ConverseResponse) bool { return out.GetStarted() != nil },
	PartEnded: func(out *chatv1.ConverseResponse) bool { return out.GetTurnEnd() != nil },
	Tokens: func(out *chatv1.ConverseResponse) int {
		return int(out.GetDelta().GetTokens() + out.GetTurnEnd().GetTokens() + out.GetEnd().GetTokens())
	},
	End: func(out *chatv1.ConverseResponse) *streamerr.Ending { return methods.Ending(out.GetEnd()) },
}

// Converse is a ConverseEngine. A conversation stays on its chat-service. Only a conversation that
// has not begun is retried on another chat-service.
func (f *Fleet) Converse(ctx context.Context, c *Conversation) iter.Seq2[*chatv1.ConverseResponse, error] {
	return func(yield func(*chatv1.ConverseResponse, error) bool) {
		var tried []*peer
		var err error = errNobody
		begun := false
		for !begun && len(tried) < maxTries && (len(tried) == 0 || elsewhere(err)) && stream.Cause(ctx) == nil {
			p := f.choose(tried)
			if p == nil {
				break
			}
			tried = append(tried, p)
			err = run(ctx, p, p.converse, c, func(out *chatv1.ConverseResponse) bool {
				begun = true
				return yield(out, nil)
			})
			if err == nil {
				return
			}
		}
		if cause := stream.Cause(ctx); cause != nil && !begun {
			err = cause
		}
		yield(nil, err)
	}
}

// converseOver returns the engine behind a chat-service's Converse.
func converseOver(self, peer string, open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[chatv1.ConverseRequest, chatv1.ConverseResponse], error)) ConverseEngine {
	return func(ctx context.Context, c *Conversation) iter.Seq2[*chatv1.ConverseResponse, error] {
		return func(yield func(*chatv1.ConverseResponse, error) bool) {
			t := &turns{later: c.Later, answered: make(chan struct{}, 1), quit: make(chan struct{})}
			call := func(ctx context.Context, opts ...grpc.CallOption) (grpc.BidiStreamingClient[chatv1.ConverseRequest, chatv1.ConverseResponse], error) {
				st, err := open(ctx, opts...)
				if err != nil {
					return nil, err
				}
				t.call = newTurnCall(st)
				return t.call, nil
			}
			var passing sync.WaitGroup
			passing.Go(func() { t.pass(ctx) })
			defer passing.Wait()
			defer t.end()
			for out, err := range rpc.Dial(self, peer, call, Converse).Range(ctx, c.First) {
				t.passed.Load() // orders the writes of the goroutine of pass before the following reads
				ended := out.GetTurnEnd() != nil
				if !yield(out, err) {
					return
				}
				if ended {
					t.next()
				}
			}
		}
	}
}

// turns passes the turns of a conversation to its chat-service. Each turn waits until the previous
// answer is complete, so that the stream counts as waiting for its client exactly while it does.
type turns struct {
	later    *stream.Inbox[*chatv1.ConverseRequest]
	answered chan struct{} // capacity 1: signals a complete answer
	quit     chan struct{} // closed when the call is over
	passed   atomic.Uint32 // counts the turns

	call  turnSender // set before the first answer
	begun bool       // an answer was complete; owned by the goroutine that ranges over the call
}

// next records that an answer is complete.
func (t *turns) next() {
	t.begun = true
	select {
	case t.answered <- struct{}{}:
	default: // a chat-service that ends a turn twice signals once
	}
}

// end ends pass. A conversation that has begun gets no more turns.
func (t *turns) end() {
	close(t.quit)
	if t.begun {
		t.later.Close()
	}
}

// pass passes turns until the client sends no more, or the call is over.
func (t *turns) pass(ctx context.Context) {
	for {
		select {
		case <-t.answered:
		case <-t.quit:
			return
		}
		in, err := t.later.Next(ctx)
		t.passed.Add(1)
		switch {
		case errors.Is(err, io.EOF):
			_ = t.call.CloseSend()
			return
		case err != nil: // the stream is stopped; rpc.Dial tells the chat-service
			return
		}
		if t.call.Send(in) != nil { // the call is over
			return
		}
	}
}

// A turnSender is a call on which two goroutines send: one sends turns, the other sends a stop.
type turnSender = grpc.BidiStreamingClient[chatv1.ConverseRequest, chatv1.ConverseResponse]

// newTurnCall returns a call on which two goroutines may send. On a link a Stop overtakes a turn
// that waits for credit. Other connections do not take two messages at a time, so there a Stop
// follows the turn being sent: rpc.Dial resets the call if that takes longer than the grace.
func newTurnCall(st turnSender) turnSender {
	if source := loop.SourceOf(st); source != nil {
		return &linkedTurnCall{turnSender: st, Source: source}
	}
	return &turnCall{turnSender: st}
}

// A turnCall is a call whose messages are sent one at a time.
type turnCall struct {
	turnSender

	mu     sync.Mutex // held while sending
	closed bool
}

// Send implements grpc.BidiStreamingClient.
func (c *turnCall) Send(in *chatv1.ConverseRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return io.EOF
	}
	return c.turnSender.Send(in)
}

// CloseSend implements grpc.ClientStream.
func (c *turnCall) CloseSend() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.turnSender.CloseSend()
}

// A linkedTurnCall is a call over a link, whose methods are safe for concurrent use. A turn that still
// waits for credit when the call is half-closed may follow: the chat-service ignores it.
type linkedTurnCall struct {
	turnSender
	loop.Source

	closed atomic.Bool
}

// Send implements grpc.BidiStreamingClient.
func (c *linkedTurnCall) Send(in *chatv1.ConverseRequest) error {
	if c.closed.Load() {
		return io.EOF
	}
	return c.turnSender.Send(in)
}

// CloseSend implements grpc.ClientStream.
func (c *linkedTurnCall) CloseSend() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.turnSender.CloseSend()
}
