package server

import (
	"context"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
)

// Embeddings implements chatv1.ChatServer. It runs a stream of one item.
func (s *Server) Embeddings(ctx context.Context, req *chatv1.EmbeddingsRequest) (*chatv1.EmbeddingsResponse, error) {
	var resp *chatv1.EmbeddingsResponse
	err := rpc.ServeUnary(ctx, s.hop, methods.ChatEmbeddings, s.models.Embed, req, func(out *chatv1.EmbeddingsResponse) { resp = out })
	return resp, err
}

// Score implements chatv1.ChatServer. It runs a stream of one item.
func (s *Server) Score(ctx context.Context, req *chatv1.ScoreRequest) (*chatv1.ScoreResponse, error) {
	var resp *chatv1.ScoreResponse
	err := rpc.ServeUnary(ctx, s.hop, methods.ChatScore, s.models.Score, req, func(out *chatv1.ScoreResponse) { resp = out })
	return resp, err
}
