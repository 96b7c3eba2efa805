package server

import (
	"context"
	"iter"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// generate is the engine of calls that carry one request.
func (s *Server) generate() chat.Engine {
	if s.repeats {
		return s.answer
	}
	return letGo(s.answer)
}

// letGo returns next, and frees what next needs of a request only until a worker has admitted it: texts, tools and variables of
// the template can be long, and a stream lasts. By then the prompts are token ids. The requests must be the stream's own, as
// those that a call carries are.
func letGo(next chat.Engine) chat.Engine {
	return func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
		return func(yield func(*chatv1.GenerateResponse, error) bool) {
			for out, err := range next(ctx, req) {
				if out.GetStarted() != nil {
					req.Messages, req.Prompts, req.Tools, req.TemplateVariables = nil, nil, nil, ""
				}
				if !yield(out, err) {
					return
				}
			}
		}
	}
}
