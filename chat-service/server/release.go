package server

import (
	"context"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/internal/prefetch"
)

// generate returns the Starter for calls with one request. In the start of an answer, it names this
// chat-service and the later fields that it knows. It frees the parts of a request that are needed only
// until a worker has admitted the stream: texts, tools and template variables can be large, and streams
// are long. By then the prompts are token ids. The requests must belong to the stream, as requests of a call do.
func (s *Server) generate() chat.Starter {
	return func(ctx context.Context, req *chatv1.ChatRequest, yield func(*chatv1.GenerateResponse, error) bool, resume func(func() bool)) (over bool) {
		pass := func(out *chatv1.GenerateResponse, err error) bool {
			if started := out.GetStarted(); started != nil {
				started.ChatService, started.KnownFields = s.hop.Name, capability.ChatFields(req)
				if !s.repeats {
					req.Messages, req.Prompts, req.Tools, req.TemplateVariables = nil, nil, nil, ""
				}
			}
			return yield(out, err)
		}
		return s.answer(prefetch.With(ctx, prefetch.Func(pass), prefetch.Func(yield)), req, pass, resume)
	}
}
