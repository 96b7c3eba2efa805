package chat

import (
	"context"
	"iter"

	"github.com/whence-dev/whence/chat-service/detoken"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// echo begins the answer with its prompt, where that is asked for. It stands above the stop strings, which end answers and
// not prompts.
func echo(m *Model, next Engine) Engine {
	return func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
		if !req.GetEcho() {
			return next(ctx, req)
		}
		text := req.GetPrompts()[0].GetText()
		if ids := req.GetPrompts()[0].GetIds(); ids != nil {
			text = m.Tokenizer.Decode(ids.GetIds(), !req.GetKeepSpecial())
		}
		return func(yield func(*chatv1.GenerateResponse, error) bool) {
			for out, err := range next(ctx, req) {
				if !yield(out, err) {
					return
				}
				if out.GetStarted() != nil && text != "" && !yield(detoken.Delta(text, 0), nil) {
					return
				}
			}
		}
	}
}
