// Package call is what the edge knows of a request for a stream, whatever API it was made in: what is asked for, and how the
// answer is written.
package call

import (
	"time"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// MaxPrompts is how many prompts a body may have: what the chat-service takes, so that more are refused before they cost
// anything.
const MaxPrompts = 64

// CheckPrompts refuses too many.
func CheckPrompts(param string, n int) error {
	if n > MaxPrompts {
		return streamerr.InvalidParam(param, "%s has %d prompts; at most %d are allowed", param, n, MaxPrompts)
	}
	return nil
}

// A Call is a request for a stream.
type Call struct {
	Request *chatv1.ChatRequest
	// ID is what the body calls the stream; "" leaves that to headers.
	ID      string
	Stream  bool          // the answer is events, not one body
	Timeout time.Duration // how long the answer may take; 0 is no limit
	// Param names a field as the body did that an inner hop calls by its name in the IDL.
	Param func(inner string) string
	// Events returns a new writer of the answer as events, Whole a new gatherer of the answer as
	// one body.
	Events func() Writer
	Whole  func() Gatherer
}

// A Writer appends the data lines of an item of a stream to lines. It is called with all items of
// one stream, in their order.
type Writer func(out *chatv1.GenerateResponse, lines Lines)

// Lines takes the data lines of events. A line is encoded in place: it is appended to the buffer
// that Begin returns, and the longer buffer is given to End.
type Lines interface {
	Begin() []byte
	End(line []byte)
}

// A Gatherer takes the items of one stream, in their order. With the End it returns the body of the
// answer, before it nil.
type Gatherer func(out *chatv1.GenerateResponse) (body []byte)

// Apart reports whether the stream says more than one text: whose a piece is, or how likely its tokens were.
func (c *Call) Apart() bool {
	s := c.Request.GetSampling()
	return Choices(c.Request) > 1 || s != nil && s.Logprobs != nil
}

// Choices returns how many answers a request asks for.
func Choices(req *chatv1.ChatRequest) int {
	return max(1, int(req.GetN())) * max(1, len(req.GetPrompts()))
}
