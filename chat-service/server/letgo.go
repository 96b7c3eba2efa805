package server

import (
	"context"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// generate is the Starter of calls that carry one request.
func (s *Server) generate() chat.Starter {
	if s.repeats {
		return s.answer
	}
	return letGo(s.answer)
}

// letGo returns next, and frees what next needs of a request only until a worker has admitted it: texts, tools and variables of
// the template can be long, and a stream lasts. By then the prompts are token ids. The requests must be the stream's own, as
// those that a call carries are.
func letGo(next chat.Starter) chat.Starter {
	return func(ctx context.Context, req *chatv1.ChatRequest, yield func(*chatv1.GenerateResponse, error) bool, resume func(func() bool)) (over bool) {
		return next(ctx, req, func(out *chatv1.GenerateResponse, err error) bool {
			if out.GetStarted() != nil {
				req.Messages, req.Prompts, req.Tools, req.TemplateVariables = nil, nil, nil, ""
			}
			return yield(out, err)
		}, resume)
	}
}
