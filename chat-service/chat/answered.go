package chat

import (
	"context"
	"iter"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

// A told is what a stream's deltas are to say beside their text.
type told struct {
	ids    []uint32 // tokens since the last delta
	failed bool     // there will be no more
}

// tell has deltas say which tokens they are, and which of them are remainders.
func tell(next stream.Engine[rendered, *chatv1.GenerateResponse]) stream.Engine[rendered, *chatv1.GenerateResponse] {
	return func(ctx context.Context, r rendered) iter.Seq2[*chatv1.GenerateResponse, error] {
		if !r.req.GetTellIds() {
			return next(ctx, r)
		}
		return func(yield func(*chatv1.GenerateResponse, error) bool) {
			r.told = &told{}
			known := uint32(len(r.req.GetAnswered().GetIds())) // tokens that are still to be told again
			for out, err := range next(ctx, r) {
				if end := out.GetEnd(); end != nil {
					end.Tokens -= min(end.Tokens, known)
				}
				if d := out.GetDelta(); d != nil {
					again := min(d.Tokens, known)
					d.Tokens -= again
					known -= again
					d.Ids, r.told.ids = r.told.ids, nil
					d.Remainder = r.told.failed
				}
				if !yield(out, err) {
					return
				}
			}
		}
	}
}

// again yields the answer so far ahead of what the worker adds to it, so that all stages above read it as if it had just come.
func again(next stream.Engine[rendered, *workerv1.GenerateResponse]) stream.Engine[rendered, *workerv1.GenerateResponse] {
	return func(ctx context.Context, r rendered) iter.Seq2[*workerv1.GenerateResponse, error] {
		if r.told == nil {
			return next(ctx, r)
		}
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			pass := func(out *workerv1.GenerateResponse, err error) bool {
				r.told.ids = append(r.told.ids, out.GetTokens().GetIds()...)
				r.told.failed = err != nil
				return yield(out, err)
			}
			for out, err := range next(ctx, r) {
				if !pass(out, err) {
					return
				}
				if out.GetStarted() == nil {
					continue
				}
				for _, id := range r.req.GetAnswered().GetIds() {
					if !pass(token(id), nil) {
						return
					}
				}
			}
		}
	}
}

func token(id uint32) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{id}}}}
}

// complete answers a request whose answer so far is all that there is room for: what is missing is its End.
func complete(id, model string, prompt, answered int) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &streamv1.Started{
			StreamId: id, Model: model, PromptTokens: uint32(prompt),
		}}}, nil) {
			return
		}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &streamv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Finish: streamv1.Finish_FINISH_LENGTH,
			Usage: &streamv1.Usage{PromptTokens: uint32(prompt), CompletionTokens: uint32(answered)},
		}}}, nil)
	}
}
