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
	// Events returns what writes the answer as the data of events, Whole what writes it as one body, with its End.
	Events, Whole func() Writer
}

// A Writer writes the items of one stream in their order. What it hands to send is good until send has returned, whose errors it
// returns.
type Writer func(out *chatv1.GenerateResponse, send func(data []byte) error) error

// Apart reports whether the stream says more than one text: whose a piece is, or how likely its tokens were.
func (c *Call) Apart() bool {
	s := c.Request.GetSampling()
	return Choices(c.Request) > 1 || s != nil && s.Logprobs != nil
}

// Choices returns how many answers a request asks for.
func Choices(req *chatv1.ChatRequest) int {
	return max(1, int(req.GetN())) * max(1, len(req.GetPrompts()))
}
