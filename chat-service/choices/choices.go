// Package choices merges several answers to one request into one stream: n answers to each of its
// prompts.
//
// Each answer is a choice. Below this package a choice is a separate stream with its own worker and
// seed; its id is the id of the whole stream followed by the choice's number. Above this package
// there is one stream: one Started, deltas with the number of their choice, a ChoiceEnd for each
// choice, and one ending. The first choice that fails ends the whole stream with its ending, and
// the other choices are stopped with the same cause.
//
// The goroutine that receives a choice's token carries it to the reader, one choice at a time, in
// the order of arrival: no choice starves, and a slow reader slows down all workers. The stream ends
// when all choices have ended.
package choices

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Reader takes the answer of a stream, or of a choice.
type Reader = stream.Reader[*chatv1.GenerateResponse]

// A Source answers one choice. Its request is the number of the choice.
type Source = stream.Engine[int, *chatv1.GenerateResponse]

const (
	// MaxEach is the maximum number of answers to one prompt.
	MaxEach = 16
	// Max is the maximum number of choices of a stream.
	Max = 64
)

// Check refuses a request with too many choices.
func Check(req *chatv1.ChatRequest) error {
	prompts := max(1, len(req.GetPrompts()))
	switch {
	case req.GetN() > MaxEach:
		return streamerr.InvalidParam("n", "n is %d; it must be at most %d", req.GetN(), MaxEach).WithCode(streamerr.CodeIntegerAbove)
	case prompts > Max:
		return streamerr.InvalidParam("prompt", "there are %d prompts; at most %d are allowed", prompts, Max)
	case Count(req) > Max:
		return streamerr.InvalidParam("n", "n is %d, and there are %d prompts: that makes %d choices; at most %d are allowed", req.GetN(), prompts, Count(req), Max)
	}
	if n := Count(req); n > 1 && !stream.ValidID(ID(req.GetStreamId(), n-1)) {
		return streamerr.InvalidParam("stream_id", "stream_id is too long for a stream with %d choices", n)
	}
	return nil
}

// Count returns the number of choices of a request.
func Count(req *chatv1.ChatRequest) int {
	return Each(req) * max(1, len(req.GetPrompts()))
}

// ID returns the id that the stream of a choice has on the hops below.
func ID(of string, choice int) string { return of + "." + strconv.Itoa(choice) }

// Each returns the number of answers to each prompt of a request.
func Each(req *chatv1.ChatRequest) int { return max(1, int(req.GetN())) }

// Merge starts the stream of a request with several choices. Check must have accepted the request.
func Merge(ctx context.Context, req *chatv1.ChatRequest, source Source, to Reader) {
	if cause := stream.Cause(ctx); cause != nil {
		to.End(cause)
		return
	}
	n := Count(req)
	m := newMerge(ctx, n, Each(req), to)
	ledger.Of(ctx).Split(n)
	for i := range n {
		m.begin(stream.WithID(ctx, ID(req.GetStreamId(), i)), i, source)
	}
}

// OfPrompt adds the number of the prompt to an error that refuses one of several prompts.
func OfPrompt(err error, prompt int) error {
	e := streamerr.As(err)
	rest, of := strings.CutPrefix(e.Param, "prompt")
	if e.Reason != streamerr.Invalid || !of {
		return err
	}
	out := *e
	out.Param = fmt.Sprintf("prompt[%d]%s", prompt, rest)
	return &out
}
