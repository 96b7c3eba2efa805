// Package choices makes several answers of one request: one for each of its prompts, and as many of each as it asks for.
//
// Each answer is a choice, and a stream of its own below: it has its own worker, seed and id, which is that of the whole with
// a number behind it. Above there is one stream: Started once, deltas that say whose they are, a ChoiceEnd for each choice, and
// one ending. The first choice that fails ends it, with that choice's ending, and the others are stopped with the same cause.
//
// A choice is read by a goroutine of its own, which holds one item until the reader has taken it. Those that wait are served in
// the order in which they came, so none is starved, and a slow reader is felt by all workers. All goroutines have ended when
// the loop is left. A request with one choice goes through untouched.
package choices

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Engine answers conversations and prompts.
type Engine = stream.Engine[*chatv1.ChatRequest, *chatv1.GenerateResponse]

const (
	// MaxEach is how many answers there may be to one prompt.
	MaxEach = 16
	// Max is how many choices a stream may have.
	Max = 64
)

// Check refuses a request that has too many choices.
func Check(req *chatv1.ChatRequest) error {
	prompts := max(1, len(req.GetPrompts()))
	switch {
	case req.GetN() > MaxEach:
		return streamerr.InvalidParam("n", "n is %d; it must be at most %d", req.GetN(), MaxEach)
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

// Count returns how many choices a request has.
func Count(req *chatv1.ChatRequest) int {
	return max(1, int(req.GetN())) * max(1, len(req.GetPrompts()))
}

// ID is what the stream of one of several choices is called on the hops below.
func ID(of string, choice int) string { return of + "." + strconv.Itoa(choice) }

// New returns an engine over next, which answers requests with one choice. Check must have accepted the request.
func New(next Engine) Engine {
	return func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
		n := Count(req)
		if n == 1 {
			return next(ctx, req)
		}
		return func(yield func(*chatv1.GenerateResponse, error) bool) {
			if cause := stream.Cause(ctx); cause != nil {
				yield(nil, cause)
				return
			}
			m := newMerge(n, max(1, int(req.GetN())))
			defer m.leave()
			ledger.Of(ctx).Split(n)
			for i := range n {
				m.begin(ctx, i, next, one(req, i))
			}
			m.run(ctx, yield)
		}
	}
}

// one is the request for one choice. It shares what is the same in all of them.
func one(req *chatv1.ChatRequest, choice int) *chatv1.ChatRequest {
	each := max(1, int(req.GetN()))
	r := &chatv1.ChatRequest{}
	req.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		r.ProtoReflect().Set(field, v)
		return true
	})
	r.StreamId, r.N = ID(req.GetStreamId(), choice), 1
	if len(req.GetPrompts()) > 0 {
		r.Prompts = req.GetPrompts()[choice/each : choice/each+1]
	}
	if s := req.GetSampling(); s != nil && s.Seed != nil {
		r.Sampling = proto.CloneOf(s)
		*r.Sampling.Seed += uint64(choice % each) // as if each prompt were asked by itself
	}
	return r
}

// named says of which prompt an error speaks.
func named(err error, prompt int) error {
	e := streamerr.As(err)
	rest, of := strings.CutPrefix(e.Param, "prompt")
	if e.Reason != streamerr.Invalid || !of {
		return err
	}
	out := *e
	out.Param = fmt.Sprintf("prompt[%d]%s", prompt, rest)
	return &out
}
