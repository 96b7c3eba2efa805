package worker

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An EmbedEngine computes vectors of texts.
type EmbedEngine = stream.Engine[*workerv1.EmbedRequest, *workerv1.EmbedResponse]

// A ScoreEngine rates documents.
type ScoreEngine = stream.Engine[*workerv1.ScoreRequest, *workerv1.ScoreResponse]

const (
	maxInputs = 2048
	// maxVectors bounds the vectors of an answer, in bytes. It leaves room for the other fields,
	// and for the fields that chat-service adds.
	maxVectors = rpc.MaxAnswer - 64<<10
)

// Embed implements workerv1.WorkerServer. The call is a stream of one item: it is stopped, timed,
// counted and recorded like any other stream.
func (s *Server) Embed(ctx context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	var resp *workerv1.EmbedResponse
	err := rpc.ServeUnary(ctx, &s.hop, methods.WorkerEmbed, stream.Push(s.vectors), req, func(out *workerv1.EmbedResponse) { resp = out })
	return resp, err
}

// Score implements workerv1.WorkerServer. It is like Embed.
func (s *Server) Score(ctx context.Context, req *workerv1.ScoreRequest) (*workerv1.ScoreResponse, error) {
	var resp *workerv1.ScoreResponse
	err := rpc.ServeUnary(ctx, &s.hop, methods.WorkerScore, stream.Push(s.scores), req, func(out *workerv1.ScoreResponse) { resp = out })
	return resp, err
}

// vectors refuses requests that no engine could answer, and answers that do not fit into a message.
func (s *Server) vectors(ctx context.Context, req *workerv1.EmbedRequest) iter.Seq2[*workerv1.EmbedResponse, error] {
	info := s.describe()
	if err := pools(info, req.GetModel(), "embeddings", s.embed != nil && info.GetEmbeds()); err != nil {
		return stream.Fail[*workerv1.EmbedResponse](err)
	}
	if n := len(req.GetInputs()) + len(req.GetTexts()); n == 0 || n > maxInputs || len(req.GetInputs()) > 0 && len(req.GetTexts()) > 0 {
		return stream.Fail[*workerv1.EmbedResponse](streamerr.InvalidParam("inputs", "there are %d inputs; there must be 1 to %d, all of token ids or all of texts", n, maxInputs))
	}
	return func(yield func(*workerv1.EmbedResponse, error) bool) {
		for out, err := range s.embed.Range(ctx, req) {
			if size := proto.Size(out); err == nil && size > maxVectors {
				out, err = nil, streamerr.InvalidParam("inputs", "the vectors take %d bytes; an answer can have at most %d: send fewer inputs", size, maxVectors)
			}
			if !yield(out, err) {
				return
			}
		}
	}
}

// scores refuses requests that no engine could answer.
func (s *Server) scores(ctx context.Context, req *workerv1.ScoreRequest) iter.Seq2[*workerv1.ScoreResponse, error] {
	info := s.describe()
	if err := pools(info, req.GetModel(), "scores", s.score != nil && info.GetScores()); err != nil {
		return stream.Fail[*workerv1.ScoreResponse](err)
	}
	switch queries, documents := len(req.GetQueries()), len(req.GetDocuments()); {
	case documents == 0 || documents > maxInputs:
		return stream.Fail[*workerv1.ScoreResponse](streamerr.InvalidParam("documents", "there are %d documents; there must be 1 to %d", documents, maxInputs))
	case queries != 1 && queries != documents:
		return stream.Fail[*workerv1.ScoreResponse](streamerr.InvalidParam("queries", "there are %d queries for %d documents; there must be one, or one for each", queries, documents))
	}
	return s.score.Range(ctx, req)
}

// pools refuses a request for what the engine does not make, or of another model.
func pools(info *llmv1.WorkerInfo, model, what string, can bool) error {
	if err := serves(info, model); err != nil {
		return err
	}
	if !can {
		return streamerr.InvalidParam("model", "the engine of %q does not support %s", info.GetModel(), what)
	}
	return nil
}
