package chat

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"

	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Composition is a request that comes in pieces.
type Composition struct {
	First *chatv1.ChatRequest
	Later *stream.Inbox[*chatv1.ComposeRequest]
}

// MaxComposed bounds a composed request, in bytes: it may be no longer than one that comes at once.
const MaxComposed = 4 << 20

// Compose answers a request as next would have answered it at once, when it is complete: the caller has said so, or will say
// nothing more.
func Compose(next Engine) stream.Engine[*Composition, *chatv1.GenerateResponse] {
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

// compose awaits the whole request.
func compose(ctx context.Context, c *Composition) (*chatv1.ChatRequest, error) {
	req, size := proto.CloneOf(c.First), proto.Size(c.First)
	req.Gathered = true
	var content strings.Builder // of the last message
	if n := len(req.GetMessages()); n > 0 {
		content.WriteString(req.GetMessages()[n-1].GetContent())
	}
	finish := func() {
		if n := len(req.GetMessages()); n > 0 {
			req.Messages[n-1].Content = content.String()
		}
	}
	for {
		in, err := c.Later.Next(ctx)
		if errors.Is(err, io.EOF) {
			finish()
			return req, nil
		}
		if err != nil {
			return nil, err
		}
		if size += proto.Size(in); size > MaxComposed {
			return nil, streamerr.New(streamerr.Invalid, "the request is longer than %d bytes", MaxComposed)
		}
		switch m := in.GetMessage().(type) {
		case *chatv1.ComposeRequest_Piece:
			if len(req.GetMessages()) == 0 {
				return nil, streamerr.InvalidParam("piece", "there is no message yet that the piece could go on with")
			}
			content.WriteString(m.Piece)
		case *chatv1.ComposeRequest_Next:
			finish()
			content.Reset()
			content.WriteString(m.Next.GetContent())
			req.Messages = append(req.Messages, proto.CloneOf(m.Next))
		case *chatv1.ComposeRequest_Go:
			finish()
			return req, nil
		default:
			return nil, streamerr.New(streamerr.Invalid, "only the first message may be a request; later ones are pieces")
		}
	}
}
