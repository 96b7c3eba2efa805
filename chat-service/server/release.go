package server

import (
	"context"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/stream"
)

// generate returns the engine for calls with one request.
func (s *Server) generate() chat.Engine {
	return func(ctx context.Context, req *chatv1.ChatRequest, to stream.Reader[*chatv1.GenerateResponse]) {
		r := &releaser{stream.RelayTo(to), s, req}
		s.answer(prefetch.With(ctx, prefetch.Of(r)), req, r)
	}
}

// A releaser names this chat-service, and the later fields that it knows, in the start of an answer. It
// frees the parts of a request that are needed only until a worker has admitted the stream: texts, tools
// and template variables can be large, and streams are long. By then the prompts are token ids. The
// request must belong to the stream, as requests of a call do.
type releaser struct {
	stream.Relay[*chatv1.GenerateResponse]

	server *Server
	req    *chatv1.ChatRequest
}

// Item implements stream.Reader.
func (r *releaser) Item(on *stream.Loop, out *chatv1.GenerateResponse) (more bool) {
	if started := out.GetStarted(); started != nil {
		started.ChatService, started.KnownFields = r.server.hop.Name, capability.ChatFields(r.req)
		if !r.server.repeats {
			r.req.Messages, r.req.Prompts, r.req.Tools, r.req.TemplateVariables = nil, nil, nil, ""
		}
	}
	return r.Pass(on, out)
}
