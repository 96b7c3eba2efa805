package server

import (
	"google.golang.org/grpc"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Limits on the unread messages of one request: their number, and their size, which is that of one
// message with the same content. A caller that exceeds them ends its stream with INVALID.
const (
	maxPieces = 64 << 10
	maxTurns  = 64
)

// converse is whence.chat.v1.Chat/Converse.
var converse = &rpc.Method[*chat.Conversation, chatv1.ConverseRequest, chatv1.ConverseResponse]{
	Open: func(c *chat.Conversation) *chatv1.ConverseRequest {
		return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Chat{Chat: c.First}}
	},
	Stop: func(stop *streamv1.Stop) *chatv1.ConverseRequest {
		return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Stop{Stop: stop}}
	},
	Opened: func(in *chatv1.ConverseRequest) (*chat.Conversation, bool) {
		return &chat.Conversation{First: in.GetChat(), Later: stream.NewInbox[*chatv1.ConverseRequest](maxTurns, chat.MaxComposed)}, in.GetChat() != nil
	},
	Stopped: func(in *chatv1.ConverseRequest) (*streamv1.Stop, bool) {
		return in.GetStop(), in.GetStop() != nil
	},
	Inbox:     func(c *chat.Conversation) *stream.Inbox[*chatv1.ConverseRequest] { return c.Later },
	ID:        func(c *chat.Conversation) *string { return &c.First.StreamId },
	Owner:     func(c *chat.Conversation) string { return c.First.GetClaim().GetOwner() },
	Started:   func(out *chatv1.ConverseResponse) bool { return out.GetStarted() != nil },
	PartEnded: func(out *chatv1.ConverseResponse) bool { return out.GetTurnEnd() != nil },
	Tokens: func(out *chatv1.ConverseResponse) int {
		return int(out.GetDelta().GetTokens() + out.GetTurnEnd().GetTokens() + out.GetEnd().GetTokens())
	},
	End: func(out *chatv1.ConverseResponse) *streamerr.Ending { return methods.Ending(out.GetEnd()) },
}

// compose is whence.chat.v1.Chat/Compose.
var compose = &rpc.Method[*chat.Composition, chatv1.ComposeRequest, chatv1.GenerateResponse]{
	Open: func(c *chat.Composition) *chatv1.ComposeRequest {
		return &chatv1.ComposeRequest{Message: &chatv1.ComposeRequest_Chat{Chat: c.First}}
	},
	Stop: func(stop *streamv1.Stop) *chatv1.ComposeRequest {
		return &chatv1.ComposeRequest{Message: &chatv1.ComposeRequest_Stop{Stop: stop}}
	},
	Opened: func(in *chatv1.ComposeRequest) (*chat.Composition, bool) {
		return &chat.Composition{First: in.GetChat(), Later: stream.NewInbox[*chatv1.ComposeRequest](maxPieces, chat.MaxComposed)}, in.GetChat() != nil
	},
	Stopped: func(in *chatv1.ComposeRequest) (*streamv1.Stop, bool) {
		return in.GetStop(), in.GetStop() != nil
	},
	Inbox:   func(c *chat.Composition) *stream.Inbox[*chatv1.ComposeRequest] { return c.Later },
	ID:      func(c *chat.Composition) *string { return &c.First.StreamId },
	Owner:   func(c *chat.Composition) string { return c.First.GetClaim().GetOwner() },
	Started: methods.Chat.Started,
	Tokens:  methods.Chat.Tokens,
	End:     methods.Chat.End,
}

// Converse implements chatv1.ChatServer.
func (s *Server) Converse(st grpc.BidiStreamingServer[chatv1.ConverseRequest, chatv1.ConverseResponse]) error {
	return rpc.Serve(s.hop, st, converse, stream.Push(chat.Converse(s.answer.Range)))
}

// Compose implements chatv1.ChatServer.
func (s *Server) Compose(st grpc.ClientStreamingServer[chatv1.ComposeRequest, chatv1.ComposeResponse]) error {
	var w whole
	return rpc.ServeGather(s.hop, st, compose, stream.Push(chat.Compose(s.answer.Range)), w.take, func() *chatv1.ComposeResponse {
		return &chatv1.ComposeResponse{Answer: w.response()}
	})
}
