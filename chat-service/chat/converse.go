package chat

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/whence-dev/whence/chat-service/conversation"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

// MaxComposed bounds a conversation and a composed request, in bytes.
const MaxComposed = conversation.MaxBytes

// A Conversation is a request whose turns arrive one after another.
type Conversation struct {
	First *chatv1.ChatRequest
	Later *stream.Inbox[*chatv1.ConverseRequest]
}

// GetClaim returns the claim of the whole conversation, for the records of its stream.
func (c *Conversation) GetClaim() *llmv1.Claim { return c.First.GetClaim() }

// Converse answers each turn as next answers the conversation so far. Package conversation decides
// what follows each message.
func Converse(next stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse]) stream.Sequence[*Conversation, *chatv1.ConverseResponse] {
	return func(ctx context.Context, c *Conversation) iter.Seq2[*chatv1.ConverseResponse, error] {
		return func(yield func(*chatv1.ConverseResponse, error) bool) {
			t := turns{ctx: ctx, next: next, later: c.Later, yield: yield, machine: conversation.New(c.First)}
			for e := (conversation.Event{Kind: conversation.Begin}); t.step(e); {
				if t.request != nil {
					e = t.answer()
				} else {
					e = t.await()
				}
			}
		}
	}
}

// turns executes the actions of a conversation's machine.
type turns struct {
	ctx     context.Context //nolint:containedctx // of the stream, which the turns are
	next    stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse]
	later   *stream.Inbox[*chatv1.ConverseRequest]
	yield   func(*chatv1.ConverseResponse, error) bool
	machine *conversation.Machine
	request *chatv1.ChatRequest // the request to answer; nil while the caller's next turn is awaited
	over    bool                // the conversation is over, or its reader has left
}

// step feeds an event to the machine and executes its actions. It returns false when the
// conversation is over, or its reader has left.
func (t *turns) step(e conversation.Event) bool {
	if t.over {
		return false
	}
	for _, a := range t.machine.Step(e) {
		switch a.Verb {
		case conversation.Deliver:
			if t.over = !t.yield(a.Message, nil); t.over {
				return false
			}
		case conversation.Ask:
			t.request = a.Request
		case conversation.Await:
			t.request = nil
		case conversation.End, conversation.Refuse:
			t.over = true
			t.yield(a.Message, a.Err)
		case conversation.Break:
			t.over = true
		}
	}
	return !t.over
}

// answer has next answer the conversation so far, and returns the event for the end of the answer.
func (t *turns) answer() conversation.Event {
	for out, err := range t.next(t.ctx, t.request) {
		if err != nil {
			return conversation.Event{Kind: conversation.Fail, Err: err}
		}
		if !t.step(conversation.Event{Kind: conversation.Item, Item: out}) {
			break
		}
	}
	return conversation.Event{Kind: conversation.Over}
}

// await waits for the caller's next message.
func (t *turns) await() conversation.Event {
	in, err := t.later.Next(t.ctx)
	switch {
	case errors.Is(err, io.EOF):
		return conversation.Event{Kind: conversation.Close}
	case err != nil:
		return conversation.Event{Kind: conversation.Fail, Err: err}
	default:
		return conversation.Event{Kind: conversation.Turn, Turn: in}
	}
}
