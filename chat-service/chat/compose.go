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

// A Composition is a request that arrives in pieces.
type Composition struct {
	First *chatv1.ChatRequest
	Later *stream.Inbox[*chatv1.ComposeRequest]
}

// GetClaim returns the claim of the request, for the records of its stream.
func (c *Composition) GetClaim() *llmv1.Claim { return c.First.GetClaim() }

// Compose gives the answer that next gives to the composed request. The request is complete when
// the caller says so, or half-closes.
func Compose(next stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse]) stream.Sequence[*Composition, *chatv1.GenerateResponse] {
	return func(ctx context.Context, c *Composition) iter.Seq2[*chatv1.GenerateResponse, error] {
		return func(yield func(*chatv1.GenerateResponse, error) bool) {
			req, err := compose(ctx, c)
			if err != nil {
				yield(nil, err)
				return
			}
			for out, err := range next(ctx, req) {
				if !yield(out, err) {
					return
				}
			}
		}
	}
}

// compose waits for the whole request.
func compose(ctx context.Context, c *Composition) (*chatv1.ChatRequest, error) {
	whole := conversation.NewComposition(c.First)
	for {
		in, err := c.Later.Next(ctx)
		if errors.Is(err, io.EOF) {
			return whole.Request(), nil
		}
		if err != nil {
			return nil, err
		}
		complete, err := whole.Add(in)
		if err != nil {
			return nil, err
		}
		if complete {
			return whole.Request(), nil
		}
	}
}
