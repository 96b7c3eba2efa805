package conversation

import (
	"strings"

	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Composition builds one request from several messages. content is the growing content of the
// last message.
type Composition struct {
	req     *chatv1.ChatRequest
	size    int // of all messages, in bytes
	content strings.Builder
}

// NewComposition returns the composition of a request that begins with first. It does not modify
// first.
func NewComposition(first *chatv1.ChatRequest) *Composition {
	c := &Composition{req: proto.CloneOf(first), size: proto.Size(first)}
	c.req.Gathered = true
	if last := c.last(); last != nil {
		c.content.WriteString(last.GetContent())
	}
	return c
}

// last returns the message to which pieces are appended, or nil.
func (c *Composition) last() *chatv1.Message {
	if n := len(c.req.GetMessages()); n > 0 {
		return c.req.GetMessages()[n-1]
	}
	return nil
}

// Add adds a message to the request, and reports whether the request is complete. An error ends the
// stream.
func (c *Composition) Add(in *chatv1.ComposeRequest) (complete bool, err error) {
	if c.size += proto.Size(in); c.size > MaxBytes {
		return false, streamerr.New(streamerr.Invalid, "the request is longer than %d bytes", MaxBytes)
	}
	switch m := in.GetMessage().(type) {
	case *chatv1.ComposeRequest_Piece:
		if c.last() == nil {
			return false, streamerr.InvalidParam("piece", "the piece has no message to continue")
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

// Request returns the complete request.
func (c *Composition) Request() *chatv1.ChatRequest {
	c.finish()
	return c.req
}

// finish sets the content of the last message.
func (c *Composition) finish() {
	if last := c.last(); last != nil {
		last.Content = c.content.String()
	}
	c.content.Reset()
}
