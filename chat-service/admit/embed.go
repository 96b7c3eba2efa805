package admit

import (
	"context"
	"iter"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

// An EmbedEngine computes vectors of token ids.
type EmbedEngine = stream.Sequence[*workerv1.EmbedRequest, *workerv1.EmbedResponse]

// EmbedStage is Stage for embedding requests, which occupy places at workers like other requests.
// The tokens of their inputs are charged.
func (q *Queue) EmbedStage(next EmbedEngine) EmbedEngine {
	return func(ctx context.Context, req *workerv1.EmbedRequest) iter.Seq2[*workerv1.EmbedResponse, error] {
		tokens := 0
		for _, text := range req.GetInputs() {
			tokens += len(text.GetIds())
		}
		served := func(*workerv1.EmbedResponse) int { return 0 }
		return admitted(ctx, q, req.GetClaim(), tokens, served, func() iter.Seq2[*workerv1.EmbedResponse, error] { return next(ctx, req) })
	}
}
