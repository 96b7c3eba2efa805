package server

import (
	"context"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// generate returns the Starter for calls with one request.
func (s *Server) generate() chat.Starter {
	if s.repeats {
		return s.answer
	}
	return releaseRequest(s.answer)
}

// releaseRequest wraps next and frees those parts of a request that are needed only until a worker has
// admitted the stream: texts, tools and template variables can be large, and streams are long. By
// then the prompts are token ids. The requests must belong to the stream, as requests of a call do.
func releaseRequest(next chat.Starter) chat.Starter {
	return func(ctx context.Context, req *chatv1.ChatRequest, yield func(*chatv1.GenerateResponse, error) bool, resume func(func() bool)) (over bool) {
		return next(ctx, req, func(out *chatv1.GenerateResponse, err error) bool {
			if out.GetStarted() != nil {
				req.Messages, req.Prompts, req.Tools, req.TemplateVariables = nil, nil, nil, ""
			}
			return yield(out, err)
		}, resume)
	}
}
