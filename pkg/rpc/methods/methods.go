// Package methods describes the methods of Whence's own services to package rpc, which does not
// know them.
package methods

import (
	"log/slog"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Chat is whence.chat.v1.Chat/Generate.
var Chat = &rpc.Method[*chatv1.ChatRequest, chatv1.GenerateRequest, chatv1.GenerateResponse]{
	Open: func(req *chatv1.ChatRequest) *chatv1.GenerateRequest {
		return &chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Chat{Chat: req}}
	},
	Stop: func(stop *streamv1.Stop) *chatv1.GenerateRequest {
		return &chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Stop{Stop: stop}}
	},
	Opened: func(in *chatv1.GenerateRequest) (*chatv1.ChatRequest, bool) {
		return in.GetChat(), in.GetChat() != nil
	},
	Stopped: func(in *chatv1.GenerateRequest) (*streamv1.Stop, bool) {
		return in.GetStop(), in.GetStop() != nil
	},
	ID:        func(req *chatv1.ChatRequest) *string { return &req.StreamId },
	Owner:     func(req *chatv1.ChatRequest) string { return req.GetClaim().GetOwner() },
	Started:   func(out *chatv1.GenerateResponse) bool { return out.GetStarted() != nil },
	PartEnded: func(out *chatv1.GenerateResponse) bool { return out.GetChoiceEnd() != nil },
	Tokens: func(out *chatv1.GenerateResponse) int {
		return int(out.GetDelta().GetTokens() + out.GetChoiceEnd().GetTokens() + out.GetEnd().GetTokens())
	},
	End: func(out *chatv1.GenerateResponse) *streamerr.Ending { return Ending(out.GetEnd()) },
}

// Worker is whence.worker.v1.Worker/Generate.
var Worker = &rpc.Method[*workerv1.TokenRequest, workerv1.GenerateRequest, workerv1.GenerateResponse]{
	Open: func(req *workerv1.TokenRequest) *workerv1.GenerateRequest {
		return &workerv1.GenerateRequest{Message: &workerv1.GenerateRequest_Tokens{Tokens: req}}
	},
	Stop: func(stop *streamv1.Stop) *workerv1.GenerateRequest {
		return &workerv1.GenerateRequest{Message: &workerv1.GenerateRequest_Stop{Stop: stop}}
	},
	Opened: func(in *workerv1.GenerateRequest) (*workerv1.TokenRequest, bool) {
		return in.GetTokens(), in.GetTokens() != nil
	},
	Stopped: func(in *workerv1.GenerateRequest) (*streamv1.Stop, bool) {
		return in.GetStop(), in.GetStop() != nil
	},
	ID:      func(req *workerv1.TokenRequest) *string { return &req.StreamId },
	Owner:   func(req *workerv1.TokenRequest) string { return req.GetClaim().GetOwner() },
	Started: func(out *workerv1.GenerateResponse) bool { return out.GetStarted() != nil },
	Tokens: func(out *workerv1.GenerateResponse) int {
		return len(out.GetTokens().GetIds()) + int(out.GetEnd().GetTokens())
	},
	End: func(out *workerv1.GenerateResponse) *streamerr.Ending { return Ending(out.GetEnd()) },
}

// ChatEmbeddings is whence.chat.v1.Chat/Embeddings.
var ChatEmbeddings = pooled[*chatv1.EmbeddingsRequest, chatv1.EmbeddingsRequest](metrics.Embeddings,
	func(req *chatv1.EmbeddingsRequest) *string { return &req.StreamId }, (*chatv1.EmbeddingsResponse).GetEnd)

// ChatScore is whence.chat.v1.Chat/Score.
var ChatScore = pooled[*chatv1.ScoreRequest, chatv1.ScoreRequest](metrics.Scores,
	func(req *chatv1.ScoreRequest) *string { return &req.StreamId }, (*chatv1.ScoreResponse).GetEnd)

// WorkerEmbed is whence.worker.v1.Worker/Embed.
var WorkerEmbed = pooled[*workerv1.EmbedRequest, workerv1.EmbedRequest](metrics.Embeddings,
	func(req *workerv1.EmbedRequest) *string { return &req.StreamId }, (*workerv1.EmbedResponse).GetEnd)

// WorkerScore is whence.worker.v1.Worker/Score.
var WorkerScore = pooled[*workerv1.ScoreRequest, workerv1.ScoreRequest](metrics.Scores,
	func(req *workerv1.ScoreRequest) *string { return &req.StreamId }, (*workerv1.ScoreResponse).GetEnd)

// pooled describes a unary method, whose answer has no tokens.
func pooled[Req interface{ GetClaim() *llmv1.Claim }, In, Out any](op metrics.Operation, id func(Req) *string, end func(*Out) *llmv1.End) *rpc.Method[Req, In, Out] {
	return &rpc.Method[Req, In, Out]{
		Operation: string(op), ID: id,
		Owner:   func(req Req) string { return req.GetClaim().GetOwner() },
		Started: func(*Out) bool { return true },
		Tokens:  func(*Out) int { return 0 },
		End:     func(out *Out) *streamerr.Ending { return Ending(end(out)) },
	}
}

// Ending returns the ending in end for package rpc, or nil if end is nil.
func Ending(end *llmv1.End) *streamerr.Ending {
	if end == nil {
		return nil
	}
	return &streamerr.Ending{Reason: streamerr.Reason(end.GetReason()), Path: &end.Path, Attrs: []slog.Attr{
		slog.Uint64("prompt_tokens", uint64(end.GetUsage().GetPromptTokens())),
		slog.Uint64("completion_tokens", uint64(end.GetUsage().GetCompletionTokens())),
	}}
}
