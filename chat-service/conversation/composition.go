package conversation

import (
	"strings"

	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Composition makes one request of several messages. The content of its last message is in content while it grows.
type Composition struct {
	req     *chatv1.ChatRequest
	size    int // of all messages, in bytes
	content strings.Builder
}

// NewComposition returns the composition of a request that begins with first. first is not changed.
func NewComposition(first *chatv1.ChatRequest) *Composition {
	c := &Composition{req: proto.CloneOf(first), size: proto.Size(first)}
	c.req.Gathered = true
	if last := c.last(); last != nil {
		c.content.WriteString(last.GetContent())
	}
	return c
}

// last returns the message that pieces are added to, or nil.
func (c *Composition) last() *chatv1.Message {
	if n := len(c.req.GetMessages()); n > 0 {
		return c.req.GetMessages()[n-1]
	}
	return nil
}

// Add adds a message to the request, and reports whether the request is complete. An error ends the stream.
func (c *Composition) Add(in *chatv1.ComposeRequest) (complete bool, err error) {
	if c.size += proto.Size(in); c.size > MaxBytes {
		return false, streamerr.New(streamerr.Invalid, "the request is longer than %d bytes", MaxBytes)
	}
	switch m := in.GetMessage().(type) {
	case *chatv1.ComposeRequest_Piece:
		if c.last() == nil {
			return false, streamerr.InvalidParam("piece", "there is no message yet that the piece could go on with")
		}
		c.content.WriteString(m.Piece)
	case *chatv1.ComposeRequest_Next:
		c.finish()
		c.content.WriteString(m.Next.GetContent())
		c.req.Messages = append(c.req.Messages, proto.CloneOf(m.Next))
	case *chatv1.ComposeRequest_Go:
		return true, nil
	default:
		return false, streamerr.New(streamerr.Invalid, "only the first message may be a request; later ones are pieces")
	}
	return false, nil
}

// Request returns the request, which is complete.
func (c *Composition) Request() *chatv1.ChatRequest {
	c.finish()
	return c.req
}

// finish gives the last message its content.
func (c *Composition) finish() {
	if last := c.last(); last != nil {
		last.Content = c.content.String()
	}
	c.content.Reset()
}
