package admit

import (
	"context"

	"github.com/whence-dev/whence/chat-service/route/fit"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/pkg/stream"
)

// An EmbedEngine computes vectors of token ids, or of texts.
type EmbedEngine = stream.Engine[*workerv1.EmbedRequest, *workerv1.EmbedResponse]

// A ScoreEngine rates documents.
type ScoreEngine = stream.Engine[*workerv1.ScoreRequest, *workerv1.ScoreResponse]

// EmbedStage is Stage for embedding requests, which occupy places at workers like other requests.
// The tokens of their inputs are charged.
func (q *Queue) EmbedStage(next EmbedEngine) EmbedEngine {
	return unaryStage(q, next, func(req *workerv1.EmbedRequest) int {
		total, _ := fit.Sizes(req)
		return total
	})
}

// ScoreStage is EmbedStage for scores. Their tokens are estimated.
func (q *Queue) ScoreStage(next ScoreEngine) ScoreEngine {
	return unaryStage(q, next, func(req *workerv1.ScoreRequest) int {
		return textonly.Count(req.GetQueries()...) + textonly.Count(req.GetDocuments()...)
	})
}

// unaryStage calls next, whose answer is one item without tokens, when there is room.
func unaryStage[Req interface{ GetClaim() *llmv1.Claim }, Resp any](q *Queue, next stream.Engine[Req, Resp], tokens func(Req) int) stream.Engine[Req, Resp] {
	return func(ctx context.Context, req Req, to stream.Reader[Resp]) {
		admit(ctx, q, req.GetClaim(), tokens(req), func(Resp) int { return 0 }, to, func(to stream.Reader[Resp]) { next(ctx, req, to) })
	}
}
